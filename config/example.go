package config

import (
	"bytes"
	_ "embed"
)

//go:embed example.yaml
var example []byte

// Example is a configuration with every field explained and optional ones commented
// out, for `auditrelay config init`.
func Example() []byte { return bytes.Clone(example) }
