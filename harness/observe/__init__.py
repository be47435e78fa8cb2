"""What is watched while a run goes: the nodes, the servers' processes, the control program's own machine."""
