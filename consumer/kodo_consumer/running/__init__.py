"""Running: one running worker, several consumers in a process, several processes of one worker."""
