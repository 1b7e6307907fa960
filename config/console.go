package config

import "strings"

// Console shows the relay's state in a browser on the same machine.
type Console struct {
	// Listen is HOST:PORT on loopback. Default: no console.
	Listen string `yaml:"listen"`
}

func (k *checker) console(c *Config) {
	at := c.Console.Listen
	if at == "" {
		return
	}
	if !k.listenAddress("console.listen", at) {
		k.fail("console.listen", at, "must be on loopback, such as 127.0.0.1:9180")
	}
	if _, port, _ := strings.Cut(at, ":"); port != "0" && (at == c.Ingest.Listen || at == c.Admin.Listen || at == c.Audit.Serve.Listen) {
		k.fail("console.listen", at, "must differ from ingest.listen, admin.listen and audit.serve.listen")
	}
}
