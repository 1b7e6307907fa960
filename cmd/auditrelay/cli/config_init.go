package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/config"
)

// schemaFile is the name by which a written configuration names its schema, in its own folder.
const schemaFile = "auditrelay.schema.json"

func (p Program) newConfigInit() *cobra.Command {
	var force, quiet bool
	return command("config init", alone(""), func(cmd *cobra.Command, args []string, _ alone) error {
		in, _ := cmd.InOrStdin().(*os.File)
		out, _ := cmd.OutOrStdout().(*os.File)
		file := cmp.Or(append(args, "")...)
		switch {
		case !quiet && isTerminal(in) && isTerminal(out):
			return p.interviewAt(cmd.Context(), in, out, cmp.Or(file, "relay.yaml"), force)
		case file == "":
			_, err := cmd.OutOrStdout().Write(config.Example())
			return err
		}
		if err := writeConfig(file, config.Example(), force); err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "wrote %s, and %s next to it for editors; edit it, then run 'auditrelay config check %s'", file, schemaFile, file)
	}, onOff(&force, "force", "replace an existing FILE"), onOff(&quiet, "non-interactive", "do not ask, and write the example"), takes(cobra.MaximumNArgs(1)))
}

// writeConfig writes the configuration, readable by its owner alone for the secrets to come, and
// its schema.
func writeConfig(path string, text []byte, force bool) error {
	write := writeNew
	if force {
		write = func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }
	}
	err := write(path, text)
	if errors.Is(err, fs.ErrExist) {
		return errExists(path)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(path), schemaFile), config.Schema(), 0o644) //nolint:gosec // it is public
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func errExists(path string) error { return fmt.Errorf("%s exists; give --force to replace it", path) }

// writeNew writes a file that its owner alone can read, where there is none yet.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// draft is a configuration by the answers so far. Its fields are named as in the checks, such as
// sinks[0].kafka.topic.
type draft struct{ root yaml.Node }

// at is the place of a field, which is made if need be.
func (d *draft) at(field string) *yaml.Node {
	n := &d.root
	for _, name := range strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		i, err := strconv.Atoi(name)
		if n.Kind = yaml.SequenceNode; err != nil {
			n.Kind, i = yaml.MappingNode, member(n, name)
		}
		if i == len(n.Content) {
			n.Content = append(n.Content, &yaml.Node{})
		}
		n = n.Content[i]
	}
	return n
}

// member is the place of a member's value; its name is added if need be.
func member(of *yaml.Node, name string) int {
	for i := 0; i < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return i + 1
		}
	}
	of.Content = append(of.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name})
	return len(of.Content)
}

// set writes a text, a list of them, or true.
func (d *draft) set(field string, value any) error { return d.at(field).Encode(value) }

// drop leaves a section out.
func (d *draft) drop(section string) {
	dot := strings.LastIndex(section, ".")
	of := d.at(section[:max(dot, 0)])
	i := member(of, section[dot+1:])
	of.Content = slices.Delete(of.Content, i-1, min(i+1, len(of.Content)))
}

func (d *draft) text() []byte {
	var b bytes.Buffer
	b.WriteString("# yaml-language-server: $schema=" + schemaFile + "\n# 'auditrelay config init --non-interactive' explains every field that there is.\n")
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	_ = out.Encode(&d.root) // into memory
	return b.Bytes()
}
