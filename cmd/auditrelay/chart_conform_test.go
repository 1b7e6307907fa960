package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// The modules with the schemas of what the chart renders.
const (
	kubernetesModule = "k8s.io/kubernetes@v1.36.3"
	operatorModule   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// conform holds all objects in files and folders against their schemas, in which nothing unknown
// is allowed.
func conform(t *testing.T, paths ...string) {
	t.Helper()
	kubeconform := tool(t, "kubeconform")
	schemas := t.TempDir()
	writeKubernetesSchemas(t, schemas)
	writeOperatorSchemas(t, schemas)
	out, err := exec.CommandContext(t.Context(), kubeconform, append([]string{
		"-strict", "-summary", "-n", "2",
		"-schema-location", schemas + "/{{.ResourceKind}}{{.KindSuffix}}.json",
	}, paths...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s", out)
}

// moduleDir is the folder of a module, which is downloaded where it is not here yet.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // so that it is no part of this module
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("SKIPPED: the schemas in the module %s cannot be downloaded: %v", module, err)
	}
	var found struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &found))
	return found.Dir
}

// writeKubernetesSchemas makes a JSON schema of each kind from the description of the API.
func writeKubernetesSchemas(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t, kubernetesModule), "api/openapi-spec/swagger.json"))
	require.NoError(t, err)
	var swagger struct{ Definitions map[string]map[string]any }
	require.NoError(t, json.Unmarshal(text, &swagger))
	for _, definition := range swagger.Definitions {
		closeObjects(definition)
	}
	for _, definition := range swagger.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // none, or one of the options that every group has
		}
		kind := kinds[0].(map[string]any)
		group, _, _ := strings.Cut(kind["group"].(string), ".")
		parts := map[string]any{}
		reachable(swagger.Definitions, definition, parts)
		schema := maps.Clone(definition)
		schema["definitions"] = parts
		writeSchema(t, dir, kind["kind"].(string), group, kind["version"].(string), schema)
	}
}

// writeOperatorSchemas takes the schemas out of the operator's definitions of its kinds.
func writeOperatorSchemas(t *testing.T, dir string) {
	t.Helper()
	from := filepath.Join(moduleDir(t, operatorModule), "example/prometheus-operator-crd")
	for _, name := range []string{"servicemonitors", "prometheusrules"} {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema map[string]map[string]any
				}
			}
		}
		readYAML(t, filepath.Join(from, "monitoring.coreos.com_"+name+".yaml"), &crd)
		for _, version := range crd.Spec.Versions {
			schema := version.Schema["openAPIV3Schema"]
			properties := schema["properties"].(map[string]any)
			properties["metadata"] = map[string]any{"type": "object", "additionalProperties": true}
			closeObjects(schema)
			writeSchema(t, dir, crd.Spec.Names.Kind, "monitoring", version.Name, schema)
		}
	}
}

// writeSchema writes it where kubeconform looks for it.
func writeSchema(t *testing.T, dir, kind, group, version string, schema map[string]any) {
	t.Helper()
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	text, err := json.Marshal(schema)
	require.NoError(t, err)
	name := strings.ToLower(kind) + "-" + version
	if group != "" {
		name = strings.ToLower(kind) + "-" + group + "-" + version
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600))
}

// closeObjects refuses unknown members, as the API server does with strict validation, and gives
// what may be a number or a text both types.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			closeObjects(part)
		}
	case map[string]any:
		_, open := s["additionalProperties"]
		if _, members := s["properties"].(map[string]any); members && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
			s["additionalProperties"] = false
		}
		if about, _ := s["description"].(string); s["format"] == "int-or-string" || strings.HasPrefix(about, "Quantity is a fixed-point") {
			s["type"] = []any{"string", "number"}
		}
		if s["x-kubernetes-int-or-string"] == true {
			delete(s, "pattern") // it is of the text alone
		}
		for _, part := range s {
			closeObjects(part)
		}
	}
}

// reachable adds the definitions that schema refers to.
func reachable(all map[string]map[string]any, schema any, to map[string]any) {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			reachable(all, part, to)
		}
	case map[string]any:
		if ref, is := s["$ref"].(string); is {
			name := strings.TrimPrefix(ref, "#/definitions/")
			if to[name] == nil {
				to[name] = all[name]
				reachable(all, all[name], to)
			}
		}
		for _, part := range s {
			reachable(all, part, to)
		}
	}
}

// certificatePair is a certificate, and its key, as PEM.
func certificatePair(t *testing.T) map[string][]byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// TestManifests: the plain manifests are what the chart renders, without what only Helm needs.
// UPDATE_MANIFESTS=1 writes them.
func TestManifests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"disk", "cluster"} {
		var s valueSet
		readYAML(t, filepath.Join(manifestsDir, name+".values.yaml"), &s.Values)
		out, err := helm(t, os.DevNull, s, "template", "auditrelay", "--skip-tests")
		require.NoError(t, err, out)
		var plain bytes.Buffer
		plain.WriteString("# Rendered from ../helm/auditrelay with " + name + ".values.yaml, by `make manifests`: edit those.\n")
		for line := range strings.Lines(out) {
			if !strings.Contains(line, "managed-by: Helm") && !strings.Contains(line, "helm.sh/chart:") && !strings.HasPrefix(line, "# Source:") {
				plain.WriteString(line)
			}
		}
		path := filepath.Join(manifestsDir, name+".yaml")
		if os.Getenv("UPDATE_MANIFESTS") != "" {
			require.NoError(t, os.WriteFile(path, plain.Bytes(), 0o600))
		}
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(kept), plain.String(), "%s: run make manifests", path)
	}
}

// TestEachManifestNamesAPrivateFolder: a volume's folder belongs to root and is open to everybody when a
// kubelet has given it to the pod's group, and yet no start has to warn of that.
func TestEachManifestNamesAPrivateFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"disk", "cluster"} {
		root := t.TempDir()
		var text string
		for _, m := range manifests(t, readFile(t, "deploy/manifests/"+name+".yaml")) {
			text += m.Data["relay.yaml"]
			for _, container := range m.Spec.Template.Spec.Containers {
				for _, mount := range container.VolumeMounts {
					require.NoError(t, os.MkdirAll(root+mount.MountPath, 0o700))
					require.NoError(t, os.Chmod(root+mount.MountPath, 0o777|os.ModeSetgid))
				}
			}
		}
		var cfg struct {
			DataDir string `yaml:"data_dir"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &cfg), text)
		require.NoError(t, durable.MakeDir(root+cfg.DataDir), "as a start does")
		file := filepath.Join(root, "relay.yaml")
		writeYAML(t, file, map[string]any{"data_dir": root + cfg.DataDir})
		_, warnings, _ := config.Kinds(nil).Check(file) // which says that there are no environments, too
		assert.NotContains(t, fmt.Sprint(warnings), "every user of this machine", name)
	}
}
