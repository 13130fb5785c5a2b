"""The embedded standalone Pulsar of `kodoctl dev`."""
