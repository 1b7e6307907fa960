package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// bom is a CycloneDX 1.6 document, as far as it is used here: https://cyclonedx.org/docs/1.6/json/.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// writeSBOM lists what is linked into a binary, as the toolchain has recorded it there.
func (r *release) writeSBOM(binary, to string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read how %s was built: %w", binary, err)
	}
	sum, err := sha256Of(binary)
	if err != nil {
		return err
	}
	product := module(info.Main.Path, r.version)
	product.Type, product.Hashes = "application", []hash{{"SHA-256", sum}}
	for _, s := range info.Settings {
		product.Properties = append(product.Properties, property{"go:build:" + s.Key, s.Value})
	}
	all := []component{module("std", info.GoVersion)}
	for _, d := range info.Deps {
		all = append(all, linked(d))
	}
	needs := dependency{Ref: product.Ref}
	for _, c := range all {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	text, err := json.MarshalIndent(bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1, Serial: serial(sum, filepath.Base(to)),
		Metadata: metadata{r.time.Format(time.RFC3339), product}, Components: all, Dependencies: []dependency{needs},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

// module is a Go module as a component.
func module(path, version string) component {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	return component{Ref: purl, Type: "library", Name: path, Version: version, PURL: purl}
}

// linked is a module with the checksum that go.sum has of it, which is of a list of files, and so no
// hash in the sense of CycloneDX.
func linked(d *debug.Module) component {
	if d.Replace != nil {
		d = d.Replace
	}
	c := module(d.Path, d.Version)
	c.Properties = []property{{"go:sum", d.Sum}}
	return c
}

// serial is a UUID that follows from what is described, so that it is the same each time.
func serial(parts ...string) string {
	h := sha256.Sum256(fmt.Append(nil, parts))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8, of one's own making
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
