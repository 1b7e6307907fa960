package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Sink is one destination: a name, and exactly one of the destinations.
type Sink struct {
	// Name is unique and must not change, since the sink's position in the journal is stored
	// under it. It has letters, digits, "-" and "_".
	Name string `yaml:"name"`
	// BatchEvents and BatchBytes bound one delivery. Defaults 5000 and 4MiB; 100
	// and 512KiB for a webhook; 20000 and 16MiB for a kafka with delivery: exactly_once.
	BatchEvents int  `yaml:"batch_events" default:"5000" check:"1..1000000"`
	BatchBytes  Size `yaml:"batch_bytes" default:"4MiB" check:"1KiB..1GiB"`
	// BatchWait is how long a delivery that is not full waits for further events: for fewer
	// requests, or for one message in a chat instead of many. At most 1m. Default 5s with the
	// format slack, otherwise 0.
	BatchWait time.Duration `yaml:"batch_wait" check:"0s..1m"`
	// Timeout bounds one attempt of one delivery. Default 30s.
	Timeout time.Duration `yaml:"timeout" default:"30s" check:"positive"`

	// Format is the form of the events: cloudevents (the default), ocsf, or for a webhook
	// slack.
	//
	// With ocsf each event's body becomes an object of OCSF 1.9.0
	// (https://schema.ocsf.io/1.9.0), as JSON: a file has one on each line, a webhook sends
	// one on each line (application/x-ndjson), and the others send it where the body goes.
	// It holds the body as received in raw_data. Match and Redact know the body as
	// received; a JSON pointer as a kafka key leads into the object.
	//
	// With slack each batch becomes one message, as the incoming webhooks of Slack,
	// Mattermost and others take it, with a line for each of its first 20 events.
	Format string `yaml:"format" default:"cloudevents"`
	// Match chooses the sink's events. If it is left out, the sink gets all.
	Match *Match `yaml:"match"`
	// Redact takes fields out of the bodies before this sink sees them; the
	// journal keeps the events as they came.
	Redact *Redact `yaml:"redact"`
	// Parallel bounds the deliveries that are under way at once, at most 64. 1, the default,
	// keeps each environment's order; with more, distant destinations are faster, and the order
	// is given up. Each delivery has connections of its own. For a file it must be 1.
	Parallel int `yaml:"parallel" default:"1" check:"1..64"`

	// Kafka, NATS, Loki, Datadog, Webhook and File are the destinations, of which exactly one is
	// given.
	Kafka   *Kafka   `yaml:"kafka"`
	NATS    *NATS    `yaml:"nats"`
	Loki    *Loki    `yaml:"loki"`
	Datadog *Datadog `yaml:"datadog"`
	Webhook *Webhook `yaml:"webhook"`
	File    *File    `yaml:"file"`
	// Custom is a destination of a Go program's own [Kind]. In YAML it has the kind's name.
	Custom *Custom `yaml:"-"`
}

// The formats of a [Sink].
const (
	FormatCloudEvents = "cloudevents"
	FormatOCSF        = "ocsf"
	FormatSlack       = "slack"
)

// ownFormats is a section with formats of its own, besides cloudevents and ocsf. here is set if
// the sink's format is written in the section.
type ownFormats interface {
	formats() (own []string, here bool)
}

// section is a Sink's description of its destination. The fields of Sink that have such a type
// are the sections; no list names them.
type section interface {
	// check reports the errors. The section is at the path at, in s.
	check(k *checker, at string, s *Sink)
}

// defaulter is a section with defaults that are not in tags. setDefaults runs before the defaults
// of s, and may set others for s. A second call changes nothing.
type defaulter interface{ setDefaults(s *Sink) }

// Exclusive is a section whose destination has only one writer, such as a file. Parallel must
// be 1 then, and no two sinks may have the same resource.
type Exclusive interface {
	// Resource returns the name of what is written, and the section's field that has it.
	Resource() (field, name string)
}

// Complete sets the defaults of s and validates it, for [Parse] and the package sinks alike. A
// second call changes nothing. The error is an [Errors] whose fields begin at the sink, such as
// "kafka.brokers".
func (s *Sink) Complete() error {
	s.setDefaults()
	k := &checker{}
	k.tagged(s, "")
	k.sink("", s)
	if len(k.errors) > 0 {
		return Errors(k.errors)
	}
	return nil
}

// Exclusive returns the sink's section if its destination has only one writer, otherwise nil.
func (s *Sink) Exclusive() Exclusive {
	for _, section := range s.sections() {
		if one := exclusive(section); one != nil {
			return one
		}
	}
	return nil
}

func exclusive(s section) Exclusive {
	var destination any = s
	if custom, ok := s.(*Custom); ok {
		destination = custom.Section
	}
	one, _ := destination.(Exclusive)
	return one
}

// Kind is the name of the section in YAML, such as "kafka".
func (s *Sink) Kind() string {
	for name := range s.sections() {
		return name // a valid sink has just one
	}
	return ""
}

// sections returns the destinations of s, by their names in YAML.
func (s *Sink) sections() map[string]section {
	found, v := map[string]section{}, reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		destination, ok := v.Field(i).Interface().(section)
		if ok && !v.Field(i).IsNil() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if custom, ok := destination.(*Custom); ok {
				name = custom.Kind
			}
			found[name] = destination
		}
	}
	return found
}

// destinations returns the names of all destinations that there are.
func destinations(kinds Kinds) (names []string) {
	sink := reflect.TypeFor[Sink]()
	for i := range sink.NumField() {
		name := sink.Field(i).Tag.Get("yaml")
		if name != "-" && sink.Field(i).Type.Implements(reflect.TypeFor[section]()) {
			names = append(names, name)
		}
	}
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	return names
}

func (s *Sink) setDefaults() {
	for _, section := range s.sections() {
		if own, ok := section.(defaulter); ok {
			own.setDefaults(s)
		}
	}
	fillIn(s)
}

// sinks checks each sink, and that no two use a resource that is for one of them only.
func (k *checker) sinks(c *Config) {
	names, resources := map[string]string{}, map[string]string{}
	for i := range c.Sinks {
		s, at := &c.Sinks[i], fmt.Sprintf("sinks[%d]", i)
		if one := s.Exclusive(); one != nil && c.Journal.Shards > 1 {
			k.fail("journal.shards", c.Journal.Shards, fmt.Sprintf("must be 1 with the sink %s, since its destination has one writer, and each shard would be one", s.Name))
		}
		if before, twice := names[s.Name]; twice && s.Name != "" {
			k.fail(at+".name", s.Name, "is the name of "+before+" already; a sink's name must be its own")
		}
		names[s.Name] = at
		k.sink(at, s)
		if s.Match != nil {
			k.matchNames(at+".match", s.Match, c.Environments)
		}
		if s.File != nil {
			k.notOwn(at+".file.path", s.File.Path, c)
		}
		for name, section := range s.sections() {
			k.resource(at, name, section, resources)
		}
	}
}

// resource refuses a second sink with the same resource.
func (k *checker) resource(at, kind string, s section, seen map[string]string) {
	one := exclusive(s)
	if one == nil {
		return
	}
	field, name := one.Resource()
	if before, twice := seen[kind+" "+name]; twice && name != "" {
		k.fail(join(join(at, kind), field), name, "is written by "+before+" already; give each sink a "+kind+" of its own")
	}
	seen[kind+" "+name] = at
}

// sink checks a sink by itself.
func (k *checker) sink(at string, s *Sink) {
	k.name(join(at, "name"), s.Name)
	if s.Match != nil {
		k.match(join(at, "match"), s.Match)
	}
	if s.Redact != nil {
		k.redact(join(at, "redact"), s.Redact)
	}
	found := s.sections()
	k.format(at, s, found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		found[name].check(k, join(at, name), s)
		k.failIf(exclusive(found[name]) != nil && s.Parallel > 1, join(at, "parallel"), s.Parallel, "must be 1 with "+name+": a "+name+" has one writer")
	}
	if len(found) != 1 {
		all := destinations(k.kinds)
		last := len(all) - 1
		k.fail(at, nil, "must have exactly one destination: "+strings.Join(all[:last], ", ")+" or "+all[last]+"; make a sink of each")
	}
}

// format checks the format, at the place where it was given.
func (k *checker) format(at string, s *Sink, found map[string]section) {
	place, known := join(at, "format"), []string{FormatCloudEvents, FormatOCSF}
	for name, section := range found {
		if with, ok := section.(ownFormats); ok {
			own, here := with.formats()
			if known = append(known, own...); here {
				place = join(join(at, name), "format")
			}
		}
	}
	k.oneOf(place, s.Format, known...)
}
