package config

import (
	"errors"
	"fmt"
	"os"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads the file at path, with the process's environment for ${NAME}; see [Parse]
// for the rest. Of the named files, it reads only those of secrets.
func Load(path string) (cfg *Config, warnings []Problem, err error) { return Kinds(nil).Load(path) }

// Load is [Load], for these kinds too.
func (k Kinds) Load(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(*decoder, *checker, *Config) {})
}

// Check loads like [Kinds.Load], and looks at all files named in the configuration, and at
// the disk. A missing file is an error, and so are a certificate that is not valid now or
// does not fit its key, and a budget larger than the disk; a file open to every user of the machine, such as a secret's,
// gives a warning.
func (k Kinds) Check(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(d *decoder, k *checker, c *Config) {
		files{k, k.fail}.all(path, d, c)
	})
}

// LoadToRun is [Kinds.Check] for a start: what Check calls an error about files and the disk
// gives a warning. A missing file may come before its use; if not, its user fails. And
// pushes are rather taken with an expired certificate than not at all.
func (k Kinds) LoadToRun(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(d *decoder, k *checker, c *Config) {
		files{k, func(field string, _ any, reason string) { k.warn(field, reason) }}.all(path, d, c)
	})
}

func (k Kinds) load(path string, look func(*decoder, *checker, *Config)) (*Config, []Problem, error) {
	data, err := readRegular(path, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	return k.read(path, data, os.LookupEnv, look)
}

// DataDir reads nothing but data_dir from the file at path, for commands to a running
// relay: they need not have the environment variables and files of its secrets.
func DataDir(path string) (string, error) {
	cfg, faults, err := withoutSecrets(path)
	if err != nil {
		return "", err
	}
	if cfg != nil && cfg.DataDir != "" {
		return cfg.DataDir, nil
	}
	if cfg == nil || faults != nil {
		return "", faults
	}
	return "", fmt.Errorf("%s: data_dir is not set", path)
}

// Witnesses reads nothing but audit.witnesses and audit.quorum from the file at path, as
// [DataDir] does.
func Witnesses(path string) (witnesses []Witness, quorum int, err error) {
	cfg, faults, err := withoutSecrets(path)
	if err != nil {
		return nil, 0, err
	}
	if cfg == nil {
		return nil, 0, faults
	}
	c := &Config{Audit: Audit{Witnesses: cfg.Audit.Witnesses, Quorum: cfg.Audit.Quorum}}
	c.SetDefaults()
	for i, w := range c.Audit.Witnesses {
		if w.Key == "" {
			return nil, 0, errors.Join(fmt.Errorf("%s: audit.witnesses[%d].key is not set", path, i), faults)
		}
	}
	return c.Audit.Witnesses, c.Audit.Quorum, nil
}

// Lines returns a function from a field's path, as [Problem.Field] has it, to its line in the
// file at path; for a field not given, to that of its section. It is 0 where unknown.
func Lines(path string) func(field string) int {
	k := &checker{}
	if data, err := readRegular(path, maxFile); err == nil {
		d := newDecoder(os.LookupEnv)
		d.document(data)
		k.places = d.places
	}
	return k.line
}

// withoutSecrets reads the file at path as far as possible; cfg is nil for no YAML document.
func withoutSecrets(path string) (cfg *Config, faults, err error) {
	data, err := readRegular(path, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	d := newDecoder(os.LookupEnv)
	cfg = d.document(data)
	if len(d.errors) > 0 {
		faults = Errors(inOrder(path, d.errors))
	}
	return cfg, faults, nil
}

// Parse reads one YAML document, resolves ${NAME} and file:PATH, fills in the defaults
// and validates the whole. An unknown field is an error.
//
// For a faulty document it returns no configuration, and an [Errors] with all its
// errors. The warnings are returned either way. No secret is in either. name is the
// document's name in errors.
func Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return Kinds(nil).Parse(name, data, env)
}

// Parse is [Parse], for these kinds too.
func (k Kinds) Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return k.read(name, data, env, func(*decoder, *checker, *Config) {})
}

// read is Parse, and at last looks at the configuration as a whole.
func (k Kinds) read(name string, data []byte, env func(string) (string, bool), look func(*decoder, *checker, *Config)) (
	cfg *Config, warnings []Problem, err error,
) {
	if err := k.check(); err != nil {
		return nil, nil, err
	}
	d := newDecoder(env)
	d.kinds = k
	cfg = d.document(data)
	if cfg != nil && !d.full() {
		cfg.SetDefaults()
		c := newChecker(d)
		c.config(cfg)
		look(d, c, cfg)
		d.errors, d.warnings = c.errors, c.warnings
	}
	warnings = inOrder(name, d.warnings)
	if len(d.errors) > 0 {
		return nil, warnings, Errors(inOrder(name, d.errors))
	}
	return cfg, warnings, nil
}

// Validate checks a configuration made by a Go program, after SetDefaults. The error is
// an [Errors] without lines.
func (c *Config) Validate() error {
	k := &checker{}
	k.config(c)
	if len(k.errors) > 0 {
		return Errors(k.errors)
	}
	return nil
}
