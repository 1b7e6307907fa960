package loki

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/snappy"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/relay"
)

var _ relay.Checker = (*Sink)(nil)

// checkName replaces the placeholders of the tenant where no event is delivered.
const checkName = "auditrelay-check"

// pushPath is how the address of a push endpoint ends; Loki's other addresses begin like it.
const pushPath = "/loki/api/v1/push"

// Check implements relay.Checker. It sends a push without streams: Loki checks the credential
// and the tenant as it does for a delivery, and writes nothing. If Loki permits it, Check reads
// Loki's configuration.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	tenant := ""
	if s.tenant != nil {
		tenant = s.tenant.Map(checkName)
		report("tenant", tenant)
	}
	a, err := s.push(ctx, tenant, snappy.Encode(nil, nil))
	if err != nil {
		return err
	}
	empty := a.Status == http.StatusUnprocessableEntity || strings.Contains(a.Text, "at least one valid stream")
	if !empty && a.class() != acknowledged {
		return a.err()
	}
	report("push endpoint", s.url.Redacted()+" takes the credential")
	return s.checkLimits(ctx, tenant, report)
}

// settings are the parts of Loki's configuration that matter here.
type settings struct {
	Ingester struct {
		MaxChunkAge string `yaml:"max_chunk_age"`
	} `yaml:"ingester"`
	Limits struct {
		MaxLineSize      string `yaml:"max_line_size"`
		Truncate         bool   `yaml:"max_line_size_truncate"`
		Metadata         *bool  `yaml:"allow_structured_metadata"`
		MetadataSize     string `yaml:"max_structured_metadata_size"`
		RejectOld        bool   `yaml:"reject_old_samples"`
		RejectOldAge     string `yaml:"reject_old_samples_max_age"`
		GracePeriod      string `yaml:"creation_grace_period"`
		Rate             string `yaml:"ingestion_rate_mb"`
		MaxLabelNames    int    `yaml:"max_label_names_per_series"`
		MaxMetadataCount int    `yaml:"max_structured_metadata_entries_count"`
	} `yaml:"limits_config"`
}

// checkLimits compares Loki's configuration with that of the sink. The settings of single
// tenants may differ, and are not visible here.
func (s *Sink) checkLimits(ctx context.Context, tenant string, report func(what, found string)) error {
	found, err := s.readSettings(ctx, tenant)
	if err != nil {
		report("limits", fmt.Sprintf("not shown (%v); Loki's defaults are assumed", err))
		return nil
	}
	l := found.Limits
	report("max_line_size", fmt.Sprintf("%s; the sink's line_bytes is %d", l.MaxLineSize, s.cfg.LineBytes))
	report("max_structured_metadata_size", fmt.Sprintf("%s; the sink's metadata_bytes is %d", l.MetadataSize, s.cfg.MetadataBytes))
	report("max_structured_metadata_entries_count", fmt.Sprintf("%d; the sink's metadata_entries is %d", l.MaxMetadataCount, s.cfg.MetadataEntries))
	report("max_chunk_age", fmt.Sprintf("%s; the sink's late_after is %v, and should be at most half of it", found.Ingester.MaxChunkAge, s.cfg.LateAfter))
	report("max_label_names_per_series", fmt.Sprintf("%d; the sink has %d, and one more for late entries", l.MaxLabelNames, len(s.labels)))
	if l.RejectOld {
		report("reject_old_samples_max_age", l.RejectOldAge+"; older events go to the dead letters")
	}
	report("ingestion_rate_mb", l.Rate)
	return s.judgeSettings(found)
}

func (s *Sink) judgeSettings(found *settings) error {
	l := found.Limits
	if l.Metadata != nil && !*l.Metadata {
		return errors.New("loki takes no structured metadata: set allow_structured_metadata in its limits_config")
	}
	if size, ok := readSize(l.MaxLineSize); ok && l.Truncate && size > 0 && size < int(s.cfg.LineBytes) {
		return fmt.Errorf("loki cuts lines at max_line_size, %s, and acknowledges them: set line_bytes to at most %d, or max_line_size_truncate to false",
			l.MaxLineSize, size)
	}
	if age, err := time.ParseDuration(found.Ingester.MaxChunkAge); err == nil && age/2 < s.cfg.LateAfter {
		return fmt.Errorf("set late_after to at most %v, half of Loki's max_chunk_age: above that, a busy Loki can leave out events and still acknowledge them", age/2)
	}
	return nil
}

func (s *Sink) readSettings(ctx context.Context, tenant string) (*settings, error) {
	base, ok := strings.CutSuffix(s.url.Path, pushPath)
	if !ok {
		return nil, errors.New("url does not end in " + pushPath)
	}
	u := *s.url
	u.Path = base + "/config"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for /config: %w", err)
	}
	a, err := s.do(r, tenant)
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK || a.Cut {
		return nil, fmt.Errorf("/config answers %d", a.Status)
	}
	found := &settings{}
	if err := yaml.Unmarshal([]byte(a.Text), found); err != nil || found.Limits.MaxLineSize == "" {
		return nil, errors.New("/config is not Loki's")
	}
	return found, nil
}

// readSize reads a size in Loki's notation, where 256KB is 256 times 1024.
func readSize(text string) (int, bool) {
	for i, unit := range []string{"KB", "MB", "GB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			size, err := strconv.Atoi(n)
			return size << (10 * (i + 1)), err == nil && size < 1<<20
		}
	}
	size, err := strconv.Atoi(strings.TrimSuffix(text, "B"))
	return size, err == nil
}
