package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/sinks/file"
)

func newDeadlettersExport() *cobra.Command {
	var letters letterFlags
	var path string
	return command(&cobra.Command{
		Use:   "export",
		Short: "Write dead letters as CloudEvents JSON lines",
		Long: `Writes the events of dead letters, one CloudEvents JSON object per line, like the file
sink. The letters stay. Bodies are as received: they include values the sink's redact
section takes out, perhaps personal data.

Exit codes: 0 all were written, 1 not all were, 64 wrong usage.`,
		Example: `  auditrelay deadletters export --config relay.yaml --sink kafka > refused.jsonl
  auditrelay deadletters export --config relay.yaml --since 24h --output refused.jsonl`,
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		var count exported
		err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error {
			return client.Letters(cmd.Context(), console.ListLetters{Filter: letters.get(), Bodies: true}, count.to(w))
		})
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%d events exported\n", count.events)
		if count.damaged > 0 {
			return fmt.Errorf("%d dead letters cannot be read, and were left out; 'deadletters list' names them", count.damaged)
		}
		return nil
	}, &letters, flagFunc(func(flags *pflag.FlagSet) {
		flags.StringVarP(&path, "output", "o", "", "write to a new `FILE` instead of standard output")
	}))
}

// exported counts an export.
type exported struct{ events, damaged int }

func (c *exported) to(w io.Writer) func(*console.Letter) error {
	var line []byte
	return func(l *console.Letter) error {
		if l.Damage != "" {
			c.damaged++
			return nil
		}
		event := l.Event()
		line = file.AppendLine(line[:0], &event)
		c.events++
		_, err := w.Write(line)
		return err
	}
}

// writeTo lets write fill the file at path, readable by its owner alone, or
// otherwise stdout.
func writeTo(path string, stdout io.Writer, write func(io.Writer) error) error {
	target := stdout
	if isTerminal(fileOf(stdout)) {
		target = &inertWriter{to: stdout}
	}
	closing := func() error { return nil }
	if path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
		target, closing = f, func() error { return errors.Join(f.Sync(), f.Close()) }
	}
	buffered := bufio.NewWriterSize(target, 64<<10)
	err := write(buffered)
	err = errors.Join(err, buffered.Flush(), closing())
	if info, failed := os.Stat(path); err != nil && failed == nil && path != "" && info.Size() == 0 {
		_ = os.Remove(path) // else the next try finds that it exists
	}
	return err
}
