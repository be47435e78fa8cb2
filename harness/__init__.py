"""The run: generators, interpreter, fault schedule, lifecycle, command line.

Floor 3: knows no workload and no nemesis; they are plug-ins, found through entry points.
"""
