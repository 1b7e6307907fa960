package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyFile sets every field that names a file, to DIR/X.
const everyFile = `data_dir: DIR/data
environments:
  - project: shop
    environment: live
    credentials: [{api_key: "file:DIR/api-key"}]
ingest: {tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
journal:
  url: tls://nats:4222
  credentials_file: DIR/journal.creds
  tls: {ca_file: DIR/journal-ca.crt, cert_file: DIR/journal.crt, key_file: DIR/journal.key}
audit: {key_file: DIR/audit.key}
sinks:
  - name: n
    nats: {url: "tls://nats:4222", nkey_file: DIR/nats.nk, tls: {ca_file: DIR/nats-ca.crt}}
`

// writeFiles writes everyFile and all files that it names, each with mode.
func writeFiles(t *testing.T, mode os.FileMode) (config string, named map[string]string) {
	t.Helper()
	dir, named := t.TempDir(), map[string]string{}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	for field, name := range map[string]string{
		"environments[0].credentials[0].api_key": "api-key",
		"ingest.tls.cert_file":                   "tls.crt",
		"ingest.tls.key_file":                    "tls.key",
		"journal.credentials_file":               "journal.creds",
		"journal.tls.ca_file":                    "journal-ca.crt",
		"journal.tls.cert_file":                  "journal.crt",
		"journal.tls.key_file":                   "journal.key",
		"audit.key_file":                         "audit.key",
		"sinks[0].nats.nkey_file":                "nats.nk",
		"sinks[0].nats.tls.ca_file":              "nats-ca.crt",
	} {
		named[field] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(named[field], []byte("hunter2-of-some-length\n"), 0o600))
	}
	for _, at := range []string{"ingest", "journal"} {
		validFor(t, named[at+".tls.cert_file"], named[at+".tls.key_file"], 365*24*time.Hour)
	}
	for _, field := range []string{"journal.tls.ca_file", "sinks[0].nats.tls.ca_file"} {
		copyFile(t, named["ingest.tls.cert_file"], named[field])
	}
	for _, file := range named {
		require.NoError(t, os.Chmod(file, mode)) // whatever the umask
	}
	config = filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(everyFile, "DIR", dir)), 0o600))
	return config, named
}

func TestCheckFindsMissingFiles(t *testing.T) {
	t.Parallel()
	config, named := writeFiles(t, 0o600)
	_, warnings, err := Kinds(nil).Check(config)
	require.NoError(t, err)
	require.Empty(t, warnings)
	for field, file := range named {
		require.NoError(t, os.Rename(file, file+".away"))
		_, _, err = Kinds(nil).Check(config)
		cfg, _, warnings, runErr := Kinds(nil).LoadToRun(config)
		require.NoError(t, os.Rename(file+".away", file))
		switch field {
		case "audit.key_file":
			require.NoError(t, err, "the first start makes it")
		case "environments[0].credentials[0].api_key":
			require.ErrorContains(t, err, field+": read the secret's file: open "+file+": no such file or directory")
			require.Error(t, runErr)
		default:
			require.ErrorContains(t, err, field+": ")
			require.ErrorContains(t, err, "there is no such file; put it there, or correct the path")
			require.NoError(t, runErr)
			require.NotNil(t, cfg)
			assert.Contains(t, fmt.Sprint(warnings), field+": there is no such file", "it may come before it is needed")
		}
	}
}

// The files of a source are those that a change of matters to a running relay.
func TestFilesOfASource(t *testing.T) {
	t.Parallel()
	config, named := writeFiles(t, 0o600)
	_, source, _, err := Kinds(nil).LoadToRun(config)
	require.NoError(t, err)
	delete(named, "audit.key_file") // the relay's own
	assert.Equal(t, named, source.Files)
	key := "environments[0].credentials[0].api_key"
	require.NoError(t, os.WriteFile(named[key], []byte("another-key-of-some-length"), 0o600))
	again, next, err := source.Again(func(string) bool { return true })
	require.NoError(t, err)
	assert.Equal(t, "another-key-of-some-length", again.Environments[0].Credentials[0].APIKey.Reveal())

	require.NoError(t, os.WriteFile(named[key], nil, 0o600)) // broken, and yet the other ones can be read
	_, _, err = source.Again(func(field string) bool { return field == key })
	require.ErrorContains(t, err, "is empty")
	again, next, err = next.Again(func(field string) bool { return field != key })
	require.NoError(t, err)
	assert.Equal(t, "another-key-of-some-length", again.Environments[0].Credentials[0].APIKey.Reveal(), "what was read last")
	assert.Equal(t, named, next.Files)
}

// TestPipesAreNotWaitedFor would hang if a pipe were opened for reading.
func TestPipesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	config, named := writeFiles(t, 0o600)
	for field, file := range named {
		require.NoError(t, os.Rename(file, file+".away"))
		require.NoError(t, syscall.Mkfifo(file, 0o600))
		_, _, err := Kinds(nil).Check(config)
		require.ErrorContains(t, err, file+" is not a regular file", field)
		require.NoError(t, os.Rename(file+".away", file))
	}
	pipe := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, _, err := Load(pipe)
	require.ErrorContains(t, err, "is not a regular file")
	_, err = DataDir(pipe)
	require.ErrorContains(t, err, "is not a regular file")
	_, err = (&TLSClient{CAFile: pipe}).ClientConfig()
	require.ErrorContains(t, err, "is not a regular file")
	_, err = (&TLSServer{CertFile: pipe, KeyFile: pipe}).ServerConfig()
	require.ErrorContains(t, err, "is not a regular file")
}

func TestOpenFilesAreNamed(t *testing.T) {
	t.Parallel()
	config, named := writeFiles(t, 0o644)
	data := filepath.Join(filepath.Dir(config), "data")
	require.NoError(t, os.Chmod(data, 0o755))
	secret := func(field string) bool {
		return !strings.Contains(field, "ca_file") && !strings.Contains(field, "cert_file")
	}
	_, warnings, err := Kinds(nil).Check(config)
	require.NoError(t, err)
	got := map[string]string{}
	for _, w := range warnings {
		got[w.Field] = w.Reason
	}
	assert.Equal(t, data+" can be read by every user of this machine (mode 0755); run: chmod o-rwx "+data, got["data_dir"])
	for field, file := range named {
		if !secret(field) {
			assert.NotContains(t, got, field, "what is public may be read")
			continue
		}
		assert.Equal(t, file+" can be read by every user of this machine (mode 0644); run: chmod o-rwx "+file, got[field])
	}
	require.NoError(t, os.Chmod(named["journal.tls.ca_file"], 0o646))
	_, _, warnings, err = Kinds(nil).LoadToRun(config)
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(warnings), "journal-ca.crt can be changed by every user of this machine (mode 0646)")
}

func TestOpenConfigWithSecrets(t *testing.T) {
	config := filepath.Join(t.TempDir(), "relay.yaml")
	t.Setenv("KEY", "hunter2-of-some-length")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{minimal, 0o644, ""},
		{minimal, 0o666, "can be changed by every user of this machine (mode 0666)"},
		{strings.Replace(minimal, "${KEY}", "plain-and-long-enough", 1), 0o640, ""},
		{strings.Replace(minimal, "${KEY}", "plain-and-long-enough", 1), 0o644, "can be read by every user of this machine (mode 0644)"},
	} {
		require.NoError(t, os.WriteFile(config, []byte(c.text), 0o600))
		require.NoError(t, os.Chmod(config, c.mode))
		_, warnings, err := Kinds(nil).Check(config)
		require.NoError(t, err)
		said := fmt.Sprint(warnings)
		assert.Equal(t, c.want != "", strings.Contains(said, "every user"), said)
		assert.Contains(t, said, c.want)
	}
}
