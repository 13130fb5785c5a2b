"""The reference consumer and producer of a kodoctl topology."""
