package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// certificates tells when the relay's certificates expire. It reads replaced files again,
// as the listeners and the sinks do.
type certificates struct {
	current atomic.Pointer[map[string]*certificate]

	seen, said map[string]string // of one goroutine: the faults of the last look, and those in the log
}

// certificate is one in files.
type certificate struct {
	config.TLSSection
	used func() *tls.Certificate // the newest good one
}

var expiryDesc = prometheus.NewDesc("auditrelay_tls_certificate_expiry_timestamp_seconds",
	"When a certificate expires: of a listener (ingest, admin, trail, console), or shown as a client (journal, traces, heartbeat, oidc, sink/NAME, witness/N).", []string{"listener"}, nil)

// startCertificates comes first: an expired certificate may be why nothing else starts.
func (r *process) startCertificates(context.Context) error {
	c := &certificates{said: map[string]string{}}
	c.current.Store(&map[string]*certificate{})
	if err := c.follow(r.cfg()); err != nil {
		return err
	}
	r.certificates = c
	r.stack.push("certificates", background(func(ctx context.Context) {
		for retry.Sleep(ctx, certificatesEvery) == nil {
			c.look(r.log)
		}
	}))
	r.admin.AddCheck(admin.Check{Name: "certificates", Probe: func(context.Context) (string, error) { return c.remark(), nil }})
	return r.reg.Register(c)
}

// follow takes the certificates of a configuration in place of those before. If one cannot be read,
// it keeps to those before.
func (c *certificates) follow(cfg *config.Config) error {
	now, before := map[string]*certificate{}, c.all()
	for _, section := range cfg.TLSSections() {
		name := certificateName(cfg, section.Path)
		if section.CertFile == "" || name == "" {
			continue
		}
		if was := before[name]; was != nil && was.TLSSection == section {
			now[name] = was
			continue
		}
		used, err := section.Follow()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		now[name] = &certificate{section, used}
	}
	c.current.Store(&now)
	return nil
}

func (c *certificates) all() map[string]*certificate { return *c.current.Load() }

// faults say what is wrong with the certificates, by their names: with those on disk, and with
// those in use. The one read before stays in use while the files cannot be used.
func (c *certificates) faults() map[string]string {
	all := map[string]string{}
	for name, current := range c.all() {
		leaf := current.used().Leaf
		until := leaf.NotAfter.UTC().Format("2006-01-02 15:04 UTC")
		switch _, err := current.Certificate(); {
		case err != nil && config.Fault(leaf, time.Now()) != "":
			all[name] = err.Error() // and no other is in use
		case err != nil:
			all[name] = fmt.Sprintf("%v; the one read before is used, until %s", err, until)
		case time.Until(leaf.NotAfter) < config.ExpiresSoon:
			all[name] = "the certificate in use expires on " + until + ": renew it before"
		}
	}
	return all
}

func (c *certificates) remark() string {
	if len(c.all()) == 0 {
		return "there are none"
	}
	faults := c.faults()
	if len(faults) == 0 {
		return "all can be used, for two weeks and more"
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		all = append(all, name+": "+faults[name])
	}
	return "warning: " + strings.Join(all, "; ")
}

// certificatesEvery is the time between two looks at the files.
const certificatesEvery = time.Minute

// look logs each fault once, when it has seen it twice, and its end: the files of a pair are not
// replaced in one step.
func (c *certificates) look(log *slog.Logger) {
	now := c.faults()
	for name, fault := range now {
		if c.seen[name] == fault && c.said[name] != fault {
			c.said[name] = fault
			log.Error("a certificate cannot be used, or not for long", "certificate", name, "fault", fault)
		}
	}
	for name := range c.said {
		if now[name] == "" {
			delete(c.said, name)
			log.Info("a certificate can be used again", "certificate", name)
		}
	}
	c.seen = now
}

// certificateName is what the certificate of a section is called in metrics and remarks; empty for
// those that are not watched: what a foreign destination is asked with.
func certificateName(cfg *config.Config, path string) string {
	var i int
	if _, err := fmt.Sscanf(path, "sinks[%d]", &i); err == nil {
		return "sink/" + cfg.Sinks[i].Name
	}
	if _, err := fmt.Sscanf(path, "audit.witnesses[%d]", &i); err == nil {
		return fmt.Sprintf("witness/%d", i+1)
	}
	switch path {
	case "audit.serve.tls":
		return "trail"
	case "console.oidc.tls":
		return "oidc"
	}
	if strings.HasPrefix(path, "environments[") {
		return ""
	}
	return strings.TrimSuffix(path, ".tls")
}

// Describe implements [prometheus.Collector].
func (c *certificates) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements [prometheus.Collector].
func (c *certificates) Collect(ch chan<- prometheus.Metric) {
	for name, current := range c.all() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(current.used().Leaf.NotAfter.Unix()), name)
	}
}
