package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
)

// A prompt asks for a field.
type prompt struct {
	field, text, usual string
	secret, list       bool // usual is then a variable's name; commas separate several values
}

// value is an answer in the form of the field.
func (q *prompt) value(answer string) any {
	if !q.list {
		return answer
	}
	return strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
}

// run asks everything, in the order of the file.
func (i *interview) run() error {
	i.say("An empty answer takes what is in [brackets], and - leaves something out.\nCtrl-C ends this, and nothing is written.\n")
	folder := "./relay-data"
	if os.Getuid() == 0 {
		folder = "/var/lib/auditrelay"
	}
	err := i.put("", prompt{field: "data_dir", text: "Folder for the relay's data, on a local disk", usual: folder})
	for _, part := range []func() error{i.budget, i.workspace, i.environments, i.host, i.console, i.sinks} {
		if err == nil {
			err = part()
		}
	}
	return err
}

// budget asks for the size of the journal, if the usual one is more than the whole disk.
func (i *interview) budget() error {
	const field = "journal.max_bytes"
	wrong := i.wrong(field)
	if wrong == nil {
		return nil
	}
	i.say("  %v", wrong)
	return i.put("", prompt{field: field, text: "Most room for events, such as 500MiB"})
}

func (i *interview) workspace() error {
	return i.put("workspace.",
		prompt{field: "base_url", text: "Address of the Workspace Management API"},
		prompt{field: "key_id", text: "Id of a workspace management key"},
		prompt{field: "secret", text: "Secret of that key", usual: "WORKSPACE_KEY_SECRET", secret: true})
}

// put asks for fields below a place.
func (i *interview) put(place string, prompts ...prompt) (err error) {
	for _, q := range prompts {
		field := place + q.field
		switch {
		case err != nil:
		case q.secret:
			err = i.secret(field, q.text, q.usual)
		default:
			_, err = i.ask(field, q.text, q.usual, func(answer string) error { return i.draft.set(field, q.value(answer)) })
		}
	}
	return err
}

func (i *interview) environments() error {
	project := ""
	for n := 0; ; n++ {
		at := fmt.Sprintf("environments[%d]", n)
		var err error
		project, err = i.ask(at+".project", "Slug of a project", project, func(answer string) error { return i.draft.set(at+".project", answer) })
		if err == nil {
			_, err = i.ask(at, "Slug of one of its environments", "", func(answer string) error { return i.draft.set(at+".environment", answer) })
		}
		if err != nil {
			return err
		}
		if more, err := i.yes("Another environment"); err != nil || !more {
			return err
		}
	}
}

// host asks where the provider's pushes come in, if the relay is to get them.
func (i *interview) host() error {
	host, err := i.ask("environments[0].stream", "Host name at which the provider reaches this relay (empty: only watch, and receive nothing)", "", func(answer string) (err error) {
		for n := range i.draft.at("environments").Content {
			err = errors.Join(err, i.orWithout(fmt.Sprintf("environments[%d].stream", n), ".relay.hostname")(answer))
		}
		return err
	})
	switch {
	case err != nil || host == "":
		return err
	case strings.Contains(host, ":"): // on loopback, or else it would not have passed
		return i.draft.set("ingest.listen", host)
	}
	_ = i.draft.set("ingest.listen", ":443") // until it is asked for
	cert, err := i.ask("ingest.tls.cert_file", "File with the certificate of "+host+" and its chain (empty: a proxy in front of the relay ends TLS)", "", i.orWithout("ingest.tls", ".cert_file"))
	if err == nil && cert == "" {
		_ = i.draft.set("ingest.behind_proxy", true)
		return i.put("", prompt{field: "ingest.listen", text: "IP:PORT to which the proxy hands pushes on", usual: "127.0.0.1:3100"})
	}
	if err == nil {
		_, err = i.ask("ingest.tls", "File with its key", "", func(answer string) error { return i.draft.set("ingest.tls.key_file", answer) })
	}
	if err != nil {
		return err
	}
	return i.put("", prompt{field: "ingest.listen", text: "IP:PORT to listen on", usual: ":443"})
}

func (i *interview) console() error {
	_, err := i.ask("console.listen", "IP:PORT for a look in the browser, on this machine only", "127.0.0.1:9180", i.orWithout("console", ".listen"))
	return err
}

// sinkKinds are those that can be answered, with their questions.
var sinkKinds = []string{"file", "kafka", "nats", "loki", "datadog", "webhook"}

var sinkQuestions = map[string][]prompt{
	"file": {{field: "path", text: "File for the events", usual: "archive/events.jsonl"}},
	"kafka": {
		{field: "brokers", text: "Brokers, HOST:PORT[,HOST:PORT…]", list: true},
		{field: "topic", text: "Topic, which may hold {type}, {project} and {environment}", usual: "auditrelay.events"},
	},
	"nats": {
		{field: "url", text: "Servers, such as tls://nats.example.com:4222"},
		{field: "subject", text: "Subject, which a JetStream stream takes", usual: "auditrelay.{project}.{environment}.{type}"},
	},
	"loki": {{field: "url", text: "Address of its push API, such as https://loki.example.com/loki/api/v1/push"}},
	"datadog": {
		{field: "site", text: "Site of your organisation", usual: "datadoghq.com"},
		{field: "api_key", text: "API key", usual: "DD_API_KEY", secret: true},
	},
	"webhook": {
		{field: "url", text: "Address to post to"},
		{field: "secret", text: "Secret that signs each request", usual: "WEBHOOK_SECRET", secret: true},
	},
}

func (i *interview) sinks() error {
	question, usual := "First destination: "+strings.Join(sinkKinds, ", "), "file"
	for n := 0; ; {
		kind, err := i.answer(question, usual)
		if err != nil || kind == "" || kind == "-" {
			return err
		}
		if !slices.Contains(sinkKinds, kind) {
			i.say("  it is one of %s", strings.Join(sinkKinds, ", "))
			continue
		}
		if err := i.sink(n, kind); err != nil {
			return err
		}
		n++
		question, usual = "Another destination (empty: no more)", ""
	}
}

func (i *interview) sink(n int, kind string) error {
	at, questions := fmt.Sprintf("sinks[%d].", n), slices.Clone(sinkQuestions[kind])
	if kind == "file" {
		questions[0].usual = filepath.Join(i.draft.at("data_dir").Value, questions[0].usual)
	}
	name := cmp.Or(map[string]string{"file": "archive"}[kind], kind)
	_ = i.draft.set(at+"name", name) // it stands first
	if err := i.put(at+kind+".", questions...); err != nil {
		return err
	}
	return i.put(at, prompt{field: "name", text: "Its name, for good", usual: name})
}

var variables = regexp.MustCompile(`\$\{([A-Z_][A-Z0-9_]*)\}`)

// next says what to do with the written file.
func (i *interview) next() error {
	_, warnings, err := i.kinds.CheckText(i.file, i.draft.text(), orSetLater)
	if err != nil {
		return fmt.Errorf("%s is written, and wants a correction: %w", i.file, err)
	}
	return printAs(i.out, false, warnings, func(p *page, warnings []config.Problem) {
		p.line("\nwrote %s, and %s next to it for editors", i.file, schemaFile)
		p.problems(i.file, nil, warnings)
		p.line("\nNext:")
		var told []string
		for _, m := range variables.FindAllStringSubmatch(string(i.draft.text()), -1) {
			if _, set := os.LookupEnv(m[1]); !set && !slices.Contains(told, m[1]) {
				p.line("  export %s=…", m[1])
				told = append(told, m[1])
			}
		}
		p.line("  auditrelay config check --api %s      # ask the workspace, and change nothing", i.file)
		p.line("  auditrelay sinks check --config %s    # try each destination", i.file)
		p.line("  auditrelay run --config %s", i.file)
	})
}
