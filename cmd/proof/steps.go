package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

//go:embed verify.py
var foreignScript []byte

// show runs the steps one by one.
type show struct {
	ctx                    context.Context //nolint:containedctx // of the whole run
	dir, binary            string
	interpreter            string // Python
	entries, proofs, cases int
	events                 int // of the journal

	rows   [][3]string
	failed int
	took   time.Duration // of the newest command
	memory int64         // its largest, in bytes
}

func (s *show) run() {
	s.step("build", s.build)
	s.step("trail", s.trail)
	s.step("sha256sum", s.sums)
	sums := s.took
	s.step("trail verify", s.verify)
	ours, memory := s.took, s.memory
	s.step("its cost", func() (string, error) { return s.cost(ours.Seconds()/sums.Seconds(), memory) })
	s.step("trail prove", s.prove)
	s.step("transparency-dev/formats", s.formats)
	s.step("tessera fsck", s.fsck)
	s.step("PyPI aics-tlog", s.python)
	s.step("tampering", s.tamper)
	s.step("rotations, copies, archives", s.attacks)
	s.ofJournal()
}

// errSkipped marks a step whose tool is missing.
type errSkipped struct{ why string }

func (e errSkipped) Error() string { return e.why }

// step reports whether the step did not fail.
func (s *show) step(name string, do func() (string, error)) bool {
	fmt.Fprintf(os.Stderr, "proof: %s\n", name)
	said, err := do()
	switch e := err.(type) { //nolint:errorlint // made here
	case nil:
		s.row(name, "ok", said)
	case errSkipped:
		s.row(name, "SKIPPED", e.why)
	default:
		s.failed++
		s.row(name, "FAILED", err.Error())
		return false
	}
	return true
}

func (s *show) row(name, result, said string) { s.rows = append(s.rows, [3]string{name, result, said}) }

func (s *show) print() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "STEP\tRESULT\tWHAT")
	for _, r := range s.rows {
		fmt.Fprintf(out, "%s\t%s\t%s\n", r[0], r[1], strings.ReplaceAll(strings.TrimSpace(r[2]), "\n", "\n\t\t"))
	}
	_ = out.Flush()
}

// command runs a program, and returns both its outputs.
func (s *show) command(env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	s.took = time.Since(start)
	if cmd.ProcessState != nil {
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			s.memory = usage.Maxrss << 10
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, tail(out.String()))
	}
	return out.String(), err
}

func tail(text string) string {
	const most = 3000
	if text = strings.TrimSpace(text); len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

func (s *show) build() (string, error) {
	_, err := s.command(nil, "go", "build", "-o", s.binary, "./cmd/auditrelay")
	return "the product, in " + s.took.Round(time.Second).String(), err
}

func (s *show) trail() (string, error) {
	out, err := s.command([]string{"AUDITRELAY_PROOF_DIR=" + s.dir, "AUDITRELAY_PROOF_ENTRIES=" + strconv.Itoa(s.entries)},
		"go", "test", "./cmd/auditrelay/cli", "-count=1", "-timeout=30m", "-run=^TestMakeAnExportForProof$", "-v")
	said := ""
	for line := range strings.Lines(out) {
		if strings.Contains(line, " entries ") {
			said += line
		}
	}
	return said, err
}

func (s *show) export() string { return filepath.Join(s.dir, "export") }
func (s *show) key() string    { return filepath.Join(s.dir, "trail.pub") }

// sums hashes the same bytes, which is the least work of any verification. A first run warms
// the disk's cache for both.
func (s *show) sums() (string, error) {
	const all = `find "$0" -type f -print0 | xargs -0 sha256sum > /dev/null; du -sb "$0" | cut -f1`
	_, _ = s.command(nil, "sh", "-c", all, s.export())
	out, err := s.command(nil, "sh", "-c", all, s.export())
	return fmt.Sprintf("%s bytes in %v", strings.TrimSpace(out), s.took.Round(time.Millisecond)), err
}

func (s *show) verify() (string, error) {
	return s.command(nil, s.binary, "trail", "verify", "--dir", s.export(), "--key", s.key())
}

// cost compares with the bounds: 3 times sha256sum, and 200 MB. The time of a short trail
// is the time of the program's start.
func (s *show) cost(times float64, memory int64) (string, error) {
	said := fmt.Sprintf("%.2f x sha256sum, %d MB of memory", times, memory>>20)
	if times >= 3 && s.entries >= 100_000 || memory >= 200<<20 {
		return "", errors.New(said + ", more than 3 x or 200 MB")
	}
	return said, nil
}

// prove proves entries spread over the trail, and has our command verify each tenth.
func (s *show) prove() (string, error) {
	args := []string{"trail", "prove", "--export", s.export(), "--dir", s.proofDir(), "--key", s.key()}
	for i := range s.proofs {
		args = append(args, strconv.Itoa(i*s.entries/s.proofs))
	}
	out, err := s.command(nil, s.binary, args...)
	took := s.took
	for i := 0; i < s.proofs && err == nil; i += max(1, s.proofs/10) {
		name := filepath.Join(s.proofDir(), strconv.Itoa(i*s.entries/s.proofs))
		_, err = s.command(nil, s.binary, "trail", "verify", "--proof", name+".tlog-proof", "--record", name+".json", "--policy", filepath.Join(s.proofDir(), "trail.policy"))
	}
	return fmt.Sprintf("%s in %v", strings.TrimSpace(out), took.Round(time.Millisecond)), err
}

func (s *show) proofDir() string { return filepath.Join(s.dir, "proofs") }

func (s *show) formats() (string, error) {
	_, err := s.command([]string{"AUDITRELAY_PROOF_DIR=" + s.proofDir(), "AUDITRELAY_PROOF_KEY=" + s.key()},
		"go", "test", "./internal/trail/verify", "-count=1", "-run=^TestProofFilesVerifyInAnIndependentImplementation$")
	return fmt.Sprintf("%d of %d proofs verify", s.proofs, s.proofs), err
}

// fsck is another project's check of a whole log. It must not report success for a changed
// entry.
func (s *show) fsck() (string, error) {
	if _, err := s.command([]string{"GOBIN=" + filepath.Dir(s.fsckTool())}, "go", "install", "github.com/transparency-dev/tessera/cmd/fsck@v1.0.4"); err != nil {
		return "", errSkipped{"fsck cannot be had: " + tail(err.Error())}
	}
	accepts := func(limit time.Duration) error {
		return s.fsckAccepts(limit, s.key(), "file://"+filepath.Join(s.export(), "0")+"/", int64(s.entries))
	}
	if err := accepts(time.Hour); err != nil {
		return "", err
	}
	took := s.took
	bundle := filepath.Join(s.export(), "0", "tile", "entries", "000")
	if err := flip(bundle); err != nil {
		return "", err
	}
	if accepts(5*time.Second+5*took) == nil {
		return "", errors.New("fsck accepts a changed entry too: it checks nothing")
	}
	return fmt.Sprintf("v1.0.4 accepts the log, in %v; and not with a changed entry", took.Round(time.Millisecond)), flip(bundle)
}

func (s *show) fsckTool() string { return filepath.Join(s.dir, "tools", "fsck") }

// fsckAccepts runs the tool on a log of at least this many entries. The tool ends with 0
// whatever it finds, and v1.0.4 hangs on a changed entry; so only what it prints on success
// counts.
func (s *show) fsckAccepts(limit time.Duration, key, url string, atLeast int64) error {
	out, err := s.command(nil, "timeout", fmt.Sprintf("%.0f", limit.Seconds()), s.fsckTool(), "--ui=false", "--public_key="+key, "--storage_url="+url)
	var size int64
	if _, said, found := strings.Cut(out, "Successfully fsck'd log with size "); found {
		if _, err := fmt.Sscan(said, &size); err == nil && size >= atLeast {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("fsck does not accept the log: %s", tail(out)), err)
}

// flip changes a byte, or changes it back.
func flip(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(name, data, 0o600)
}

// python verifies the proofs in a package that uses neither code of ours nor Go.
func (s *show) python() (string, error) {
	venv := filepath.Join(s.dir, "venv")
	if _, err := s.command(nil, s.interpreter, "-m", "venv", venv); err != nil {
		return "", errSkipped{"no virtual environment: " + tail(err.Error())}
	}
	if _, err := s.command(nil, filepath.Join(venv, "bin", "pip"), "install", "-q", "aics-tlog==0.2.1"); err != nil {
		return "", errSkipped{"aics-tlog needs Python 3.12 (--python) and PyPI: " + tail(err.Error())}
	}
	script := filepath.Join(s.dir, "verify.py")
	if err := os.WriteFile(script, foreignScript, 0o600); err != nil {
		return "", err
	}
	return s.command(nil, filepath.Join(venv, "bin", "python"), script, s.key(), s.proofDir())
}

func (s *show) tamper() (string, error) {
	out, err := s.command([]string{"AUDITRELAY_TAMPER=" + strconv.Itoa(s.cases)}, "go", "test", "./internal/trail/verify", "./cmd/auditrelay",
		"-count=1", "-v", "-timeout=1h", "-run=^(TestTamperingIsFoundAndNamed|TestATamperedDataDirectoryIsFound)$")
	if err != nil {
		return "", fmt.Errorf("go test: %s", tail(failures(out)))
	}
	said := ""
	for line := range strings.Lines(out) {
		if _, text, found := strings.Cut(line, "tamper_test.go:"); found {
			_, text, _ = strings.Cut(text, ": ")
			said += text
		}
	}
	return said, nil
}

// failures are the lines of a verbose test's output that tell what failed, and why.
func failures(out string) string {
	var said strings.Builder
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		passing := len(fields) > 1 && (fields[0] == "===" || fields[0] == "---" && fields[1] == "PASS:")
		if !passing {
			said.WriteString(line)
		}
	}
	return said.String()
}

// attacks are what an expert of transparency logs tried: each test tampers in one way, and our
// command has to find it.
func (s *show) attacks() (string, error) {
	tests := []string{
		// A generation deleted after one or two rotations; older files put back; files against the log.
		"TestAGenerationDeletedAfterARotationIsMissed", "TestFilesDeletedAfterARotationAreMissed", "TestTheFilesAreHeldAgainstTheLog",
		// In a sink's copy: each attribute forged, data exchanged, imitations pushed.
		"TestAForgedAttributeIsFound", "TestAnAttributeThatStandsThereTwiceIsRefused", "TestACopyAtASinkIsProvenToTheLastEntry",
		"TestAPushedImitationIsNamedApart", "TestAnImitationHidesNothing", "TestManyImitationsTakeLittleMemory",
		// An extra entry in a bundle; every file of an archive.
		"TestAFullBundleStandsForAPartialOne", "TestLostAndDamagedFilesAreWrittenAgain", "TestEveryFileOfAnArchiveIsVerified",
	}
	out, err := s.command(nil, "go", "test", "./internal/trail/verify", "./internal/trail/tiles", "./cmd/auditrelay", "-count=1", "-v", "-timeout=1h",
		"-run=^("+strings.Join(tests, "|")+")$")
	if passed := strings.Count(out, "\n--- PASS: "); err == nil && passed != len(tests) {
		err = fmt.Errorf("%d of %d tests ran: one has another name now", passed, len(tests))
	}
	return fmt.Sprintf("%d of %d ways to tamper are found", len(tests), len(tests)), err
}
