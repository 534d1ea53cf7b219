"""The sections of a report, one file each: its rows, how they print, and what its template gets.

A section `NAME.py` ends in its `SECTION`, a `fpemu.analysis.report.section.Section`; its part of
the page is templates/sections/NAME.html.j2. `fpemu.analysis.report.layout` lists them in order.
"""
