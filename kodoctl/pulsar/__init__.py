"""The only package of kodoctl that talks to Pulsar: interfaces (ports) in kodoctl's own types, and their adapters."""
