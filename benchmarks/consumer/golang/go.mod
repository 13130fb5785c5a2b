module kodoctl-benchmark

go 1.21

require (
	github.com/apache/pulsar-client-go v0.9.0
	github.com/shenqianjin/soften-client-go v0.0.0
)
