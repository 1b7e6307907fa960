package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

const day = 24 * time.Hour

// What no peer would accept is an error of the check, but only a warning at a start, since it
// is better to take pushes with an expired certificate than not at all.
func TestCheckReadsCertificates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil    func(t *testing.T, named map[string]string)
		err      string
		warnings string
	}{
		"good": {spoil: func(*testing.T, map[string]string) {}},
		"expired": {
			spoil: func(t *testing.T, named map[string]string) {
				validFor(t, named["ingest.tls.cert_file"], named["ingest.tls.key_file"], -day)
			},
			err: "ingest.tls.cert_file: the certificate FILE expired on ",
		},
		"not valid yet": {
			spoil: func(t *testing.T, named map[string]string) {
				validFor(t, named["ingest.tls.cert_file"], named["ingest.tls.key_file"], 400*day)
			},
			err: "ingest.tls.cert_file: the certificate FILE is valid from ",
		},
		"another key": {
			spoil: func(t *testing.T, named map[string]string) {
				copyFile(t, named["journal.tls.key_file"], named["ingest.tls.key_file"])
			},
			err: "private key does not match public key",
		},
		"no PEM": {
			spoil: func(t *testing.T, named map[string]string) {
				require.NoError(t, os.WriteFile(named["journal.tls.cert_file"], []byte("hunter2"), 0o600))
			},
			err: "journal.tls.cert_file: the certificate ",
		},
		"no authorities": {
			spoil: func(t *testing.T, named map[string]string) {
				require.NoError(t, os.WriteFile(named["sinks[0].nats.tls.ca_file"], []byte("hunter2"), 0o600))
			},
			err: "sinks[0].nats.tls.ca_file: ",
		},
		"ends soon": {
			spoil: func(t *testing.T, named map[string]string) {
				validFor(t, named["journal.tls.cert_file"], named["journal.tls.key_file"], 3*day)
			},
			warnings: "expires on ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, named := writeFiles(t, 0o600)
			c.spoil(t, named)
			_, warnings, err := Kinds(nil).Check(config)
			if c.err == "" {
				require.NoError(t, err)
				assert.Equal(t, c.warnings != "", len(warnings) > 0, warnings)
				assert.Contains(t, fmt.Sprint(warnings), c.warnings)
				return
			}
			want := strings.ReplaceAll(c.err, "FILE", named["ingest.tls.cert_file"])
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "hunter2")
			cfg, _, warnings, err := Kinds(nil).LoadToRun(config)
			require.NoError(t, err)
			require.NotNil(t, cfg)
			assert.Contains(t, fmt.Sprint(warnings), want)
		})
	}
}

func TestACertificateForAnotherName(t *testing.T) {
	t.Parallel()
	config, named := writeFiles(t, 0o600)
	_ = named
	for host, want := range map[string]bool{"relay.example.com": false, "\"127.0.0.1:3100\"": false, "other.example.com": true} {
		text, err := os.ReadFile(config)
		require.NoError(t, err)
		file := filepath.Join(filepath.Dir(config), "other.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), "    credentials: ", "    stream: {relay: {hostname: "+host+"}}\n    credentials: ", 1)+
			"workspace: {base_url: https://management.example.com, key_id: k, secret: hunter2-hunter2}\n"), 0o600))
		_, warnings, err := Kinds(nil).Check(file)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Contains(fmt.Sprint(warnings), "is not for other.example.com, where environments push to"), "%s: %v", host, warnings)
	}
}

func TestABudgetLargerThanTheDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "relay.yaml")
	write := func(budget, more string) {
		require.NoError(t, os.WriteFile(config, []byte("data_dir: "+dir+"/not/made/yet\nenvironments: [{project: p, environment: e}]\n"+
			"journal: {max_bytes: "+budget+more+"}\n"), 0o600))
	}
	write("4194304TiB", "")
	_, _, err := Kinds(nil).Check(config)
	require.ErrorContains(t, err, "journal.max_bytes: ")
	require.ErrorContains(t, err, "is more than the whole disk of "+dir)
	_, _, warnings, err := Kinds(nil).LoadToRun(config)
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(warnings), "is more than the whole disk of "+dir)
	write("100MiB", "")
	_, warnings, err = Kinds(nil).Check(config)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprint(warnings), "disk")
	write("4194304TiB", ", url: 'nats://127.0.0.1:4222'")
	_, _, err = Kinds(nil).Check(config)
	require.NoError(t, err, "the cluster's disk is not this one")
}
