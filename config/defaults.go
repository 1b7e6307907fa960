package config

import (
	"os"
	"strings"
)

// setDefault fills in an empty field.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaults sets every empty field to its default. [Parse] calls it; a Go program that makes
// a Config itself calls it before Validate.
func (c *Config) SetDefaults() {
	if c.Journal.URL == "" {
		setDefault(&c.Journal.Replicas, 1)
	}
	setDefault(&c.Journal.Replicas, 3)
	setDefault(&c.Audit.Origin, "auditrelay.local/"+hostname())
	c.Audit.setDefaults(c.DataDir)
	setDefault(&c.Audit.Quorum, len(c.Audit.Witnesses))
	if o := c.Console.OIDC; o != nil && o.Scopes == nil {
		o.Scopes = []string{"profile", "email"}
	}
	for i := range c.Sinks {
		c.Sinks[i].setDefaults()
	}
	fillIn(c)
}

// hostname returns as much of the host's name as the origin of a trail may contain.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '+' {
			return '-'
		}
		return r
	}, name)
}
