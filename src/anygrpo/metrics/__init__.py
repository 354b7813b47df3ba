"""Every metric's name, unit, normal range and meaning, as data. Imports nothing heavy.

A metric's name is a path: `area/what`. Names ending in `/` are families (`reward/component/` + the component's name).
`docs/metrics.md` is printed from here, in both languages, and the doctor takes its words from here.
"""
