package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// volume is a folder of secrets as Kubernetes mounts them: each file is a link through ..data, which
// is replaced as a whole.
type volume struct {
	t        *testing.T
	dir      string
	editions int
}

// put replaces all files in one step.
func (v *volume) put(files map[string]string) {
	v.t.Helper()
	v.editions++
	edition := "..edition" + strings.Repeat("-", v.editions)
	require.NoError(v.t, os.MkdirAll(filepath.Join(v.dir, edition), 0o700))
	for name, text := range files {
		require.NoError(v.t, os.WriteFile(filepath.Join(v.dir, edition, name), []byte(text), 0o600))
		if link := filepath.Join(v.dir, name); v.editions == 1 {
			require.NoError(v.t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	require.NoError(v.t, os.Symlink(edition, filepath.Join(v.dir, "..data_tmp")))
	require.NoError(v.t, os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")))
}

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// startOnFiles runs a relay with a configuration in a file, in which DIR is a volume. The volume
// changes after the configuration was loaded, and before the relay starts.
func startOnFiles(t *testing.T, text string, files map[string]string, changes ...map[string]string) (*running, *volume, *logged) {
	t.Helper()
	dir := t.TempDir()
	v := &volume{t: t, dir: filepath.Join(dir, "secrets")}
	v.put(files)
	path := filepath.Join(dir, "relay.yaml")
	text = strings.NewReplacer("DIR", v.dir, "DATA", dir).Replace(`data_dir: DATA/data
environments:
  - {project: acme, environment: live, credentials: [{username: u, password: "file:DIR/push"}]}
`+text) + "  - {name: file, file: {path: " + filepath.Join(dir, "events.jsonl") + "}}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	load := func(string) (Loaded, error) {
		cfg, source, _, err := config.Kinds(nil).LoadToRun(path)
		return Loaded{Config: cfg, Source: source}, err
	}
	loaded, err := load("")
	require.NoError(t, err)
	loaded.Config.Sinks = append(loaded.Config.Sinks[len(loaded.Config.Sinks)-1:], loaded.Config.Sinks[:len(loaded.Config.Sinks)-1]...)
	for _, files := range changes {
		v.put(files)
	}
	log := &logged{}
	r := startWith(t, loaded.Config, Options{
		Logger:  slog.New(slog.NewTextHandler(log, nil)),
		Reloads: Reloads{Load: load, Source: loaded.Source, Every: 5 * time.Millisecond},
	})
	return r, v, log
}

func (r *running) usable() string { return r.metric("auditrelay_config_files_usable") }

// Passwords and tokens from files are followed: those of pushes, of the private pages and of a sink,
// replaced as Kubernetes does it. A file that cannot be used changes nothing.
func TestChangedSecretsAreUsed(t *testing.T) {
	t.Parallel()
	var key atomic.Value
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key.Store(r.Header.Get("X-Key")) }))
	t.Cleanup(receiver.Close)
	files := func(n string) map[string]string {
		return map[string]string{"push": "the-push-password-" + n, "token": "the-private-token-" + n + "\n", "trail": "the-token-of-the-trail-" + n, "key": "the-key-of-the-sink-" + n}
	}
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0", token: "file:DIR/token"}
audit: {serve: {listen: "127.0.0.1:0", token: "file:DIR/trail"}}
sinks:
  - name: hook
    webhook: {url: "`+receiver.URL+`", headers: {X-Key: "file:DIR/key"}}
`, files("one"))
	at := func(url, token string) int {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		code, _ := r.do(req)
		return code
	}
	page := func(token string) int { return at("http://"+r.Admin+"/metrics", token) }
	trail := func(token string) int { return at("http://"+r.Trail+"/tlog/checkpoint", token) }
	delivers := func(n string) {
		t.Helper()
		waiting.Until(t, func() bool { // a sink may change over later than the credentials
			return r.pushAs("u", "the-push-password-"+n, 1) == 204 && key.Load() == "the-key-of-the-sink-"+n
		})
	}
	delivers("one")
	require.Equal(t, 200, page("the-private-token-one"))

	v.put(files("two"))
	waiting.Until(t, func() bool { return page("the-private-token-two") == 200 })
	delivers("two")
	waiting.Until(t, func() bool { return trail("the-token-of-the-trail-two") != 401 })
	assert.Equal(t, 401, page("the-private-token-one"))
	assert.Equal(t, 401, trail("the-token-of-the-trail-one"))
	assert.Equal(t, 401, r.pushAs("u", "the-push-password-one", 1))

	broken := files("three")
	broken["key"] = "" // it is being written
	v.put(broken)
	waiting.Until(t, func() bool { return log.count("changed files cannot be used") == 1 })
	waiting.Until(t, func() bool { return page("the-private-token-three") == 200 }, "a broken file holds up no other")
	waiting.Until(t, func() bool { return r.pushAs("u", "the-push-password-three", 1) == 204 })
	assert.Equal(t, 401, r.pushAs("u", "the-push-password-two", 1))
	key.Store("")
	require.Equal(t, 204, r.pushAs("u", "the-push-password-three", 2))
	waiting.Until(t, func() bool { return key.Load() == "the-key-of-the-sink-two" })
	seen := log.count("level=WARN")
	v.put(files("four"))
	delivers("four")
	assert.Equal(t, seen, log.count("level=WARN"), "one warning for one fault")
	assert.NotContains(t, log.text.String(), "the-key-of")
	require.NoError(t, r.stop())
}

// The authorities, the certificate and the key of a sink are followed, and so is the certificate of
// the listener. Broken ones, and a key of another certificate, leave what was used before.
func TestChangedCertificatesAreUsed(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	receiver, url := newMutual(t, first)
	files := func(a *authority, name string) map[string]string {
		all := map[string]string{"push": "the-push-password", "ca.crt": pemOf(a.cert)}
		all["tls.crt"], all["tls.key"] = a.pair(name)
		return all
	}
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0", tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
admin: {listen: "127.0.0.1:0"}
sinks:
  - name: hook
    webhook: {url: "`+url+`", tls: {ca_file: DIR/ca.crt, cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
`, files(first, "one"))
	// push pushes over a fresh connection, and returns the name in the listener's certificate.
	push := func(a *authority) string {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(a.cert)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
		req, err := http.NewRequest(http.MethodPost, "https://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(fmt.Sprintf(`{"streams":[{"stream":{"a":"b"},"values":[["1","{\"x\":%d}"]]}]}`, time.Now().UnixNano())))
		require.NoError(t, err)
		req.SetBasicAuth("u", "the-push-password")
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		require.Equal(t, 204, resp.StatusCode)
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "one", push(first))
	waiting.Until(t, func() bool { return receiver.last() == "one" })

	v.put(files(second, "two"))
	receiver.trust(second)
	waiting.Until(t, func() bool { return push(second) == "two" && receiver.last() == "two" }, log.text.String())

	other := files(second, "three")
	other["tls.key"] = files(second, "four")["tls.key"]
	v.put(other)
	waiting.Until(t, func() bool { return r.usable() == "0" }, "a key of another certificate")
	require.Equal(t, "two", push(second))
	_, ready := r.get("/readyz")
	assert.Contains(t, ready, "warning")

	half := files(second, "five")
	half["ca.crt"] = half["ca.crt"][:100]
	v.put(half)
	waiting.Until(t, func() bool { _, ready = r.get("/readyz"); return strings.Contains(ready, "ca.crt") }, "half of the authorities")
	assert.Equal(t, "0", r.usable())

	v.put(files(second, "six"))
	waiting.Until(t, func() bool { return r.usable() == "1" && push(second) == "six" && receiver.last() == "six" })
	require.NoError(t, r.stop())
}

// What is read at each connection is followed too: the authorities, the pair and the headers of traces.
func TestChangedFilesOfTracesAreUsed(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	receiver, url := newMutual(t, first)
	files := func(a *authority, name string) map[string]string {
		all := map[string]string{"push": "the-push-password", "ca.crt": pemOf(a.cert), "key": "the-key-of-" + name}
		all["tls.crt"], all["tls.key"] = a.pair(name)
		return all
	}
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
traces: {endpoint: "`+url+`/v1/traces", ratio: 1, headers: {X-Key: "file:DIR/key"}, tls: {ca_file: DIR/ca.crt, cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
sinks:
`, files(first, "one"))
	sent := func(name string) {
		t.Helper()
		waiting.Until(t, func() bool {
			require.Equal(t, 204, r.pushAs("u", "the-push-password", 1))
			return receiver.last() == name && receiver.lastKey() == "the-key-of-"+name
		}, log.text.String())
	}
	sent("one")
	broken := files(first, "two")
	broken["ca.crt"] = "half a certif"
	v.put(broken)
	waiting.Until(t, func() bool { return r.usable() == "0" })
	_, ready := r.get("/readyz")
	assert.Contains(t, ready, "traces.tls: read CA file ")
	v.put(files(second, "three"))
	receiver.trust(second)
	sent("three")
	waiting.Until(t, func() bool { return r.usable() == "1" })
	require.NoError(t, r.stop())
}

// Files that can only be used together are one part: a pair, a sink's, and whatever shares a file.
func TestPartsOfFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"ingest.tls.cert_file": "crt", "ingest.tls.key_file": "key", "sinks[0].webhook.tls.cert_file": "crt", "sinks[0].webhook.secret": "s",
		"sinks[1].kafka.sasl.password": "p", "environments[0].credentials[0].password": "e", "environments[0].credentials[1].password": "f",
		"admin.token": "t", "workspace.secret": "w",
	}
	got := partsOf(slices.Sorted(maps.Keys(files)), files)
	for _, part := range got {
		slices.Sort(part)
	}
	slices.SortFunc(got, slices.Compare)
	assert.Equal(t, [][]string{
		{"admin.token"},
		{"environments[0].credentials[0].password", "environments[0].credentials[1].password"},
		{"ingest.tls.cert_file", "ingest.tls.key_file", "sinks[0].webhook.secret", "sinks[0].webhook.tls.cert_file"},
		{"sinks[1].kafka.sasl.password"},
		{"workspace.secret"},
	}, got)
}

// Each file that a configuration may name is followed, by a reload's rules or by whoever connects,
// except for the relay's own.
func TestEachFileIsFollowed(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{}
	cfg.Audit.Witnesses = make([]config.Witness, 1)
	var fill func(reflect.Value) // with each section that may be left out
	fill = func(section reflect.Value) {
		for i := range section.NumField() {
			field := section.Field(i)
			if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct {
				field.Set(reflect.New(field.Type().Elem()))
			}
			if field.Kind() == reflect.Slice && field.Len() > 0 {
				field = field.Index(0)
			}
			if field = reflect.Indirect(field); field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[secret.Text]() {
				fill(field)
			}
		}
	}
	fill(reflect.ValueOf(cfg).Elem())
	known := []string{"journal.credentials_file", "audit.key_file", "audit.checkpoint_file", "console.redact.hash_key"}
	seen, followed := 0, []string{}
	for _, section := range cfg.TLSSections() {
		followed = append(followed, section.Path)
	}
	var walk func(reflect.Type, string)
	walk = func(section reflect.Type, path string) {
		for i := range section.NumField() {
			kind, name := section.Field(i).Type, section.Field(i).Tag.Get("yaml")
			at := strings.TrimPrefix(path+"."+name, ".")
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
				if kind.Kind() == reflect.Slice {
					at += "[0]"
				}
				kind = kind.Elem()
			}
			named := strings.HasSuffix(name, "_file") || kind == reflect.TypeFor[secret.Text]()
			if named && config.RuleOf(at).Rule != config.Live && !slices.Contains(known, at) {
				seen++
				assert.Contains(t, followed, sectionOf(at), "a change of %s has no effect, and nobody is told", at)
			}
			if kind.Kind() == reflect.Struct && !named && name != "-" {
				walk(kind, at)
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
	assert.Greater(t, seen, 10)
}

// A broken certificate of a listener is told of, too, though the listener reads it by itself.
func TestABrokenCertificateOfAListener(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.pair("one")
	_, other := a.pair("two")
	files := func(key string) map[string]string {
		return map[string]string{"push": "the-push-password", "tls.crt": cert, "tls.key": key}
	}
	r, v, _ := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0", tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
admin: {listen: "127.0.0.1:0"}
sinks:
`, files(key))
	v.put(files(other))
	waiting.Until(t, func() bool { return r.usable() == "0" })
	v.put(files(key))
	waiting.Until(t, func() bool { return r.usable() == "1" })
	require.NoError(t, r.stop())
}

// A file that changes after it was read, and before the relay first looks at it, is not missed.
func TestAFileThatChangesDuringTheStart(t *testing.T) {
	t.Parallel()
	r, _, _ := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
sinks:
`, map[string]string{"push": "the-push-password-one"}, map[string]string{"push": "the-push-password-two"})
	waiting.Until(t, func() bool { return r.pushAs("u", "the-push-password-two", 1) == 204 })
	assert.Equal(t, "1", r.usable())
	require.NoError(t, r.stop())
}

// A reload that reads changed secrets itself uses them once, and a dry run names their fields.
func TestReloadNamesChangedFiles(t *testing.T) {
	t.Parallel()
	r, v, _ := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
sinks:
`, map[string]string{"push": "the-push-password-one"})
	v.put(map[string]string{"push": "the-push-password-two"})
	done, err := console.NewClient(r.data).Reload(t.Context(), console.Reload{})
	require.NoError(t, err)
	require.True(t, done.Applied)
	raw, err := json.Marshal(done)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "the-push-password")
	require.Equal(t, 204, r.pushAs("u", "the-push-password-two", 1))
	require.NoError(t, r.stop())
}
