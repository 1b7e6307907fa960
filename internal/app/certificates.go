package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
)

// certificates tells when the relay's certificates expire. It reads replaced files anew,
// as the listeners and the sinks do.
type certificates struct {
	current map[string]func() (*tls.Certificate, error)
}

var expiryDesc = prometheus.NewDesc("auditrelay_tls_certificate_expiry_timestamp_seconds",
	"When a certificate expires: of a listener (ingest, admin, trail), or shown as a client (journal, sink/NAME, witness/N).", []string{"listener"}, nil)

// startCertificates comes first: an expired certificate may be why nothing else starts.
func (r *process) startCertificates(context.Context) error {
	c := &certificates{current: map[string]func() (*tls.Certificate, error){}}
	for name, section := range servers(r.cfg) {
		served, err := section.ServerConfig()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.current[name] = func() (*tls.Certificate, error) { return served.GetCertificate(nil) }
	}
	for name, section := range clients(r.cfg) {
		shown, err := section.ClientConfig()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.current[name] = func() (*tls.Certificate, error) { return shown.GetClientCertificate(nil) }
	}
	return r.reg.Register(c)
}

// servers are the listeners with a certificate.
func servers(c *config.Config) map[string]*config.TLSServer {
	all := map[string]*config.TLSServer{"ingest": c.Ingest.TLS, "admin": c.Admin.TLS, "trail": c.Audit.Serve.TLS}
	maps.DeleteFunc(all, func(_ string, t *config.TLSServer) bool { return t == nil })
	return all
}

// clients are the connections with a client certificate.
func clients(c *config.Config) map[string]*config.TLSClient {
	all := map[string]*config.TLSClient{"journal": c.Journal.TLS}
	for i := range c.Sinks {
		all["sink/"+c.Sinks[i].Name] = c.Sinks[i].ClientTLS()
	}
	for i, witness := range c.Audit.Witnesses {
		all[fmt.Sprintf("witness/%d", i+1)] = witness.TLS
	}
	maps.DeleteFunc(all, func(_ string, t *config.TLSClient) bool { return t == nil || t.CertFile == "" })
	return all
}

// Describe implements [prometheus.Collector].
func (c *certificates) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements [prometheus.Collector].
func (c *certificates) Collect(ch chan<- prometheus.Metric) {
	for name, current := range c.current {
		if cert, err := current(); err == nil && cert.Leaf != nil {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(cert.Leaf.NotAfter.Unix()), name)
		}
	}
}
