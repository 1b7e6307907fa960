package config

import (
	"bytes"
	_ "embed"
)

//go:embed example.yaml
var example []byte

// Example is a configuration with every field explained, what is optional
// commented out: what `auditrelay config init` prints.
func Example() []byte { return bytes.Clone(example) }
