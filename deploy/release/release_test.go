package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// cycloneDX is the module with the schemas of CycloneDX.
const cycloneDX = "github.com/CycloneDX/cyclonedx-go@v0.12.0"

func testRelease(t *testing.T) *release {
	t.Helper()
	return &release{root: "../..", out: t.TempDir(), version: "v1.2.3", pgo: "off", time: time.Unix(1_800_000_000, 0).UTC(), targets: []target{{"linux", "amd64"}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSBOMIsOne holds the list of what is linked into this test against the schema of CycloneDX.
func TestSBOMIsOne(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	self, err := os.Executable()
	must(t, err)
	must(t, r.writeSBOM(self, r.file("bom.json")))
	text, err := os.ReadFile(r.file("bom.json"))
	must(t, err)
	if !strings.Contains(string(text), "github.com/goreleaser/nfpm/v2") {
		t.Error("the list lacks a module that is linked")
	}

	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", cycloneDX).Output()
	if err != nil {
		t.Skipf("SKIPPED: the schemas of CycloneDX cannot be downloaded: %v", err)
	}
	var module struct{ Dir string }
	must(t, json.Unmarshal(out, &module))
	compiler := jsonschema.NewCompiler()
	for address, file := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		part, err := os.ReadFile(filepath.Join(module.Dir, "schema", file))
		must(t, err)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(part))
		must(t, err)
		must(t, compiler.AddResource("http://cyclonedx.org/schema/"+address, document))
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	must(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	must(t, schema.Validate(document))
}

// TestImageIsOne makes an image of a stand-in for the binary, and reads it back.
func TestImageIsOne(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	binary := filepath.Join(t.TempDir(), "auditrelay")
	must(t, os.WriteFile(binary, []byte("a binary"), 0o600))
	must(t, r.image(map[target]string{r.targets[0]: binary}, t.TempDir()))
	folder := t.TempDir()
	untar(t, r.file("auditrelay_1.2.3_oci.tar"), folder)
	index, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	must(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	must(t, err)
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	manifest, err = inner.IndexManifest()
	must(t, err)
	image, err := inner.Image(manifest.Manifests[0].Digest)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	if config.Config.User != "65532:65532" || config.Architecture != "amd64" || !config.Created.Equal(r.time) {
		t.Errorf("the image is made for %s, user %q, at %v", config.Architecture, config.Config.User, config.Created)
	}
	if certificates := bytes.Count(authorities(), []byte("BEGIN CERTIFICATE")); certificates < 100 {
		t.Errorf("the image has %d authorities", certificates)
	}
}

func untar(t *testing.T, file, folder string) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer func() { _ = f.Close() }()
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		data, err := io.ReadAll(archive)
		must(t, err)
		path := filepath.Join(folder, filepath.Clean("/"+h.Name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, data, 0o600))
	}
}

// TestStatic: a binary with cgo gets into no release.
func TestStatic(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("SKIPPED: there is no C compiler to make a binary with cgo")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/c\ngo 1.26\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\nimport \"C\"\nfunc main() {}\n"), 0o600))
	for cgo, refused := range map[string]bool{"0": false, "1": true} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "c"+cgo, ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED="+cgo)
		if cgo == "0" { // a file with import "C" alone is left out then
			must(t, os.WriteFile(filepath.Join(dir, "plain.go"), []byte("//go:build !cgo\n\npackage main\n\nfunc main() {}\n"), 0o600))
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := static(filepath.Join(dir, "c"+cgo)); (err != nil) != refused {
			t.Errorf("CGO_ENABLED=%s: %v", cgo, err)
		}
	}
}

// TestArchivesAreTheSame whatever the order in which files are found.
func TestArchivesAreTheSame(t *testing.T) {
	t.Parallel()
	entries := []entry{{name: "b/", mode: 0o755}, {name: "b/c", mode: 0o644, data: []byte("text")}, {name: "a", mode: 0o755}}
	var first, second bytes.Buffer
	at := time.Unix(1_800_000_000, 0)
	must(t, writeTar(&first, at, slices.Clone(entries)))
	slices.Reverse(entries)
	must(t, writeTar(&second, at, entries))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order of the files matters")
	}
}

func TestSectionsOfAHelp(t *testing.T) {
	t.Parallel()
	about, sections := sectionsOf("Does it.\n\nExit codes: 0.\n\nUsage:\n  auditrelay do [flags]\n\nAvailable Commands:\n  one         The first\n  two-more    The second\n\nFlags:\n  -h, --help   help\n\nUse \"auditrelay do [command] --help\" for more.\n")
	if about != "Does it.\n\nExit codes: 0." || len(sections) != 3 || sections[2].text != "  -h, --help   help" {
		t.Errorf("%q %q", about, sections)
	}
	found := subcommand.FindAllStringSubmatch(sections[1].text, -1)
	if len(found) != 2 || found[1][1] != "two-more" {
		t.Errorf("%q", found)
	}
	if page := testRelease(t).page("auditrelay-do", ".hidden \\ line", nil); !strings.Contains(page, "\n\\&.hidden \\e line") {
		t.Errorf("a line would be read as a macro: %s", page)
	}
}

func TestChartNumbers(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3-rc.1", "d984042": "0.0.0-dev.gd984042", "1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty"} {
		if got := chartNumber(number); got != want {
			t.Errorf("%s: %s, want %s", number, got, want)
		}
	}
}
