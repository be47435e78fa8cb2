"""What a run is to do: the plan, the plug-ins that it names, and what it leaves open."""
