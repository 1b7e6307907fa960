package policy

import (
	"bytes"
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed packs.yaml
var shipped []byte

// Pack is a named list of rules that is shipped with the relay.
type Pack struct {
	Name string `yaml:"name" json:"name"`
	// About says for whom it is.
	About string `yaml:"about" json:"about"`
	Rules []Rule `yaml:"rules" json:"rules"`
}

// Packs are those shipped with the relay. The names of their rules begin with the pack's.
var Packs = sync.OnceValue(func() []Pack {
	packs, err := readPacks(shipped)
	if err != nil {
		panic(err) // a test reads the file
	}
	return packs
})

func readPacks(data []byte) (packs []Pack, err error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&packs); err != nil {
		return nil, fmt.Errorf("read the packs of rules: %w", err)
	}
	for _, p := range packs {
		for i := range p.Rules {
			p.Rules[i].Name = p.Name + "/" + p.Rules[i].Name
		}
	}
	return packs, nil
}
