"""Team rules: what a team asks of its topologies, declared in `kodoctl-rules.yaml`. They are data; nothing of them runs."""
