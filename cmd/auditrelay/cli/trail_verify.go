package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// verifyFlags are those of 'trail verify'.
type verifyFlags struct {
	trailFlags
	kafka         kafkaFlags
	proof, record string
	events        string
	trust         trustFlags
	known         []string
	output        outputFlag
}

func (p Program) newTrailVerify() *cobra.Command {
	f := &verifyFlags{trailFlags: *p.trail(), output: forms("text", "json")}
	return command(&cobra.Command{
		Use:   "verify --key KEY",
		Short: "Prove the audit trail to be as signed, and complete",
		Long: `Reads a trail, hashes every entry, and gives two verdicts, each with all findings against
it:

  integrity     the bytes are the signed ones: entries, hashes, checkpoints and their
                history; there is one history, and keys are vouched for
  completeness  nothing is missing: the attestations of looks at settings, the heartbeats,
                the spans of the event stream, and the entries themselves have no gaps

It reads one of these:
  --url URL              what a running relay serves under /tlog/
  --config, --data-dir   the files of the relay on this machine; those of a stopped one are held
                         against its log, which may have more (--offline insists on that)
  --dir DIR              what 'trail export --form tlog' wrote, or an archive: all of it is there
  --from-events FILE     a sink's own copy: CloudEvents, batches of them or their bodies, as
                         JSON lines in any order; duplicates are fine. The root is computed
                         from them, and the attributes of each entry are held against it
  --from-kafka TOPIC     the same from a Kafka topic: all partitions, from the first record to
                         the last one at the start
  --proof FILE           one proof; --record FILE is the entry that it is about

A relay that guards /tlog/ wants a bearer token: --token-file FILE, or the environment variable
AUDITRELAY_TLOG_TOKEN. The password of --kafka-user is in AUDITRELAY_KAFKA_PASSWORD; client
certificates, Kerberos and OAuth are left out: consume such a topic with its own tools, as JSON
lines, into --from-events -.

The trust comes from outside: --key, the log's verifier key, or --policy, a file with keys of
logs and witnesses (C2SP tlog-policy). Without either, the answer says so: whoever can write
the files can sign them. An older copy put in the trail's place is found by a witness's
signature, or by --checkpoint, a checkpoint from another day or place.

Entries moved out by 'trail archive' are checked by their hashes. Verify the archive with --dir, and
the trail with the archive's checkpoint: then both are one history.

In a sink's copy, each attribute of an entry's event has to be the entry's: id, source, type,
subject, time, receivedtime (the same), datacontenttype, project and environment. Pushed events
that imitate entries are named apart, and count for nothing. Bodies without attributes can be
pushed by anybody: there only the signed roots tell entries from imitations.

Exit codes: 0 both verdicts hold; 1 integrity is broken, or it cannot be read; 3 nothing is
against integrity, and completeness, the trust in the keys, or a single entry under a signed
root is not shown; 64 wrong usage.`,
		Example: `  auditrelay trail verify --url https://relay.example/tlog/ --policy trail.policy
  auditrelay trail verify --dir export --key example.com/trail+1a2b3c4d+AbCd
  auditrelay trail verify --config relay.yaml --offline --key trail.pub
  auditrelay trail verify --url https://relay.example/tlog/ --token-file tlog.token --key trail.pub
  auditrelay trail verify --from-events events.jsonl --policy trail.policy --output json
  auditrelay trail verify --from-kafka kafka-1:9092,kafka-2:9092/auditrelay.events --key trail.pub
  auditrelay trail verify --from-kafka kafka:9093/audit --kafka-tls --kafka-user auditor --key trail.pub
  auditrelay trail verify --proof 17.tlog-proof --record 17.json --policy trail.policy`,
	}, alone(""), func(cmd *cobra.Command, _ []string, _ alone) error { return f.run(cmd) }, f)
}

func (f *verifyFlags) addTo(cmd *cobra.Command) {
	withFlags(cmd, &f.kafka, text(&f.folder, "dir", "a `DIR` with the trail, or with one log of it"),
		text(&f.events, "from-events", "a `FILE` of events as JSON lines; - for standard input"),
		text(&f.proof, "proof", "a .tlog-proof `FILE`"), text(&f.record, "record", "the `FILE` with the entry, with --proof"), &f.trust,
		texts(&f.known, "checkpoint", "a `FILE` with a signed checkpoint known from elsewhere; again for more"), &f.output)
	f.addFilesTo(cmd, "the `URL` of the trail, or of one log of it", "the relay is stopped: read its log too", "dir", "from-events", "from-kafka", "proof")
	cmd.MarkFlagsMutuallyExclusive("url", "dir", "from-events", "from-kafka", "proof", "offline")
	cmd.MarkFlagsRequiredTogether("proof", "record")
}

func (f *verifyFlags) run(cmd *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.proof != "" {
		return f.runProof(cmd, o.Policy)
	}
	shown := newProgress(cmd.ErrOrStderr())
	o.Progress = shown.entries
	report, err := f.verify(cmd, shown, o)
	shown.end()
	if err != nil {
		return err
	}
	report.RefuseEmpty()
	err = printAs(cmd.OutOrStdout(), f.output.isJSON(), report, printVerdicts)
	switch {
	case err != nil:
		return err
	case len(report.Integrity.Findings) > 0:
		return errReported
	case !report.Trusted || !report.Integrity.Holds || !report.Completeness.Holds:
		return errNotShown
	}
	return nil
}

// options reads the files to hold the trail against.
func (f *verifyFlags) options() (o verify.Options, err error) {
	if o.Policy, _, err = f.trust.read(); err != nil {
		return o, err
	}
	for _, name := range f.known {
		note, err := os.ReadFile(name)
		if err != nil {
			return o, fmt.Errorf("read the known checkpoint: %w", err)
		}
		o.Known = append(o.Known, note)
	}
	return o, nil
}

// verify reads the trail named by the flags.
func (f *verifyFlags) verify(cmd *cobra.Command, shown *progress, o verify.Options) (verify.Report, error) {
	ctx := cmd.Context()
	switch {
	case f.kafka.topic != "":
		return f.kafka.verify(cmd, shown, o)
	case f.events != "":
		return f.verifyEvents(ctx, o)
	case f.offline:
		return f.verifyStopped(ctx, o)
	case f.url == "" && f.folder == "":
		dir, err := f.dir()
		if err != nil {
			return verify.Report{}, err
		}
		if f.isStopped(dir) {
			o.Now = time.Now()
			return f.verifyStopped(ctx, o)
		}
	}
	if f.folder == "" {
		o.Live, o.Now = true, time.Now()
	} else {
		o.Whole = !tiles.HasArchived(f.folder)
	}
	if f.url != "" {
		o.Workers = 8
	}
	fetch, dirs, err := f.find(cmd)
	if err != nil {
		return verify.Report{}, err
	}
	return verify.Trail(ctx, fetch, dirs, o)
}

// isStopped reports whether a data directory has the trail's log, and no relay that uses it: then
// the files are held against the log, since nobody brings them up to date.
func (f *verifyFlags) isStopped(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, app.StoreDir, audit.EntriesLog))
	_, loaded := f.load()
	return err == nil && loaded == nil && !durable.IsLocked(dir)
}

func (f *verifyFlags) verifyEvents(ctx context.Context, o verify.Options) (_ verify.Report, err error) {
	in := io.ReadCloser(os.Stdin)
	if f.events != "-" {
		if in, err = os.Open(f.events); err != nil {
			return verify.Report{}, fmt.Errorf("read the events: %w", err)
		}
		defer func() { _ = in.Close() }()
	}
	return verify.Events(ctx, in, o)
}

// proven is the answer of --output json on one proof.
type proven struct {
	Origin    string   `json:"origin"`
	Index     int64    `json:"index"` // in its log
	Size      int64    `json:"size"`
	Key       string   `json:"key"`
	Witnesses []string `json:"witnesses,omitempty"`
}

// runProof verifies one proof, of the record in a file.
func (f *verifyFlags) runProof(cmd *cobra.Command, policy *proof.Policy) error {
	if err := f.trust.needed("a proof"); err != nil {
		return err
	}
	file, err := os.ReadFile(f.proof)
	if err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	record, err := os.ReadFile(f.record)
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	made, err := provenBy(*policy, file, record)
	if err != nil {
		return fmt.Errorf("%s: %w", f.proof, err)
	}
	return printAs(cmd.OutOrStdout(), f.output.isJSON(), made, func(p *page, made proven) {
		p.line("%s is entry %d of the log %s, proven against its signed root over %d entries; cosigned by %d witnesses",
			f.record, made.Index, printable(made.Origin), made.Size, len(made.Witnesses))
	})
}

func provenBy(policy proof.Policy, file, record []byte) (made proven, err error) {
	index, c, by, err := verify.Proof(policy, file, record)
	made = proven{Origin: c.Origin, Index: index, Size: c.Size, Key: by.Log}
	for _, w := range by.Witnesses {
		made.Witnesses = append(made.Witnesses, w.Witness)
	}
	return made, err
}

// verifyStopped verifies the logs of a stopped relay, and its files for public tools.
func (f *verifyFlags) verifyStopped(ctx context.Context, o verify.Options) (verify.Report, error) {
	cfg, err := f.load()
	if err != nil {
		return verify.Report{}, err
	}
	report, unnamed, err := verifyLog(ctx, cfg)
	if err != nil {
		return verify.Report{}, err
	}
	return verify.Stopped(ctx, filepath.Join(cfg.DataDir, tiles.Dir), report, unnamed, o)
}

// mostShownApart bounds the imitations shown to a person; --output json has more of them.
const mostShownApart = 10

// printVerdicts prints the report for a person.
func printVerdicts(p *page, r verify.Report) {
	for _, l := range r.Logs {
		p.line("%s", logText(l))
	}
	switch {
	case r.Entries == 0 && len(r.Integrity.Findings) == 0:
		p.line("integrity: NOT SHOWN: nothing was checked, as no entry is under a signed root")
	case r.Trusted:
		p.verdict("integrity", r.Integrity, "every entry is the signed one", "BROKEN")
	default:
		p.verdict("integrity", r.Integrity, "the files agree with each other", "BROKEN")
	}
	p.verdict("completeness", r.Completeness, "no gap", "NOT SHOWN")
	p.line("%d entries and %d checkpoints were checked", r.Entries, r.Checkpoints)
	for _, a := range r.Archived {
		p.line("%d entries are archived, and were checked by their hashes only: %d to %d, moved to %s: verify that folder with --dir", a.To-a.From+1, a.From, a.To, printable(a.Where))
	}
	for _, found := range r.Settled {
		p.line("settled: %s", printable(found.String()))
	}
	if r.Apart.Events > 0 {
		p.line("%d events look like the trail's and are none of it: they count for nothing, and against nothing", r.Apart.Events)
		for _, found := range r.Apart.Findings[:min(len(r.Apart.Findings), mostShownApart)] {
			p.line("  %s", printable(found.String()))
		}
	}
	if !r.Trusted {
		p.line("NOTHING IS PROVEN except that the files agree with each other: without --key or --policy, no signature was checked,\n" +
			"and whoever can write the files could have made all of them.")
	}
}

func logText(l verify.Log) string {
	if l.Size == 0 {
		return fmt.Sprintf("log %s: no entry is under a signed root", printable(l.Origin))
	}
	text := fmt.Sprintf("log %s: entries %d to %d, root %s", printable(l.Origin), l.Base, l.Base+l.Size-1, l.Root)
	if !l.Signed.IsZero() {
		text += ", signed at " + moment(l.Signed)
	}
	if len(l.Witnesses) > 0 {
		text += ", cosigned by " + printable(strings.Join(l.Witnesses, ", "))
	}
	return text
}

func (p *page) verdict(name string, v verify.Verdict, good, bad string) {
	if v.Holds {
		p.line("%s: holds: %s", name, good)
		return
	}
	p.line("%s: %s: %d findings", name, bad, int64(len(v.Findings))+v.More)
	for _, found := range v.Findings {
		p.line("  %s", printable(found.String()))
	}
	if v.More > 0 {
		p.line("  and %d more", v.More)
	}
}
