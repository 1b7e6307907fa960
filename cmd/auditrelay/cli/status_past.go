package cli

import (
	"time"
)

// pastKept is how many samples a sparkline shows.
const pastKept = 12

// past has the earlier answers, for rates and sparklines. A nil *past has none.
type past struct {
	series map[string]*series // of "environment PROJECT/ENVIRONMENT" and "sink NAME"
	at     time.Time          // of the newest answer
}

// series has the newest rates, the oldest first.
type series struct {
	rates []float64
	total int64 // of the newest answer
}

func newPast() *past { return &past{series: map[string]*series{}} }

// note takes an answer.
func (p *past) note(s *relayStatus) {
	seconds := s.Relay.Now.Sub(p.at).Seconds()
	first := p.at.IsZero() || seconds <= 0
	p.at = s.Relay.Now
	for i := range s.Environments {
		e := &s.Environments[i]
		p.of("environment " + e.Project + "/" + e.Environment).add(e.Observed.EventsPerSecond)
	}
	for i := range s.Sinks {
		if s.Sinks[i].Delivery == nil {
			continue
		}
		sink, total := p.of("sink "+s.Sinks[i].Name), s.Sinks[i].Events
		if !first && total >= sink.total { // it is less after a restart
			sink.add(float64(total-sink.total) / seconds)
		}
		sink.total = total
	}
}

func (p *past) of(key string) *series {
	if p.series[key] == nil {
		p.series[key] = &series{}
	}
	return p.series[key]
}

func (s *series) add(rate float64) {
	s.rates = append(s.rates, rate)
	s.rates = s.rates[max(0, len(s.rates)-pastKept):]
}

// rate is the newest one, as text.
func (p *past) rate(key string) string {
	if p == nil || p.series[key] == nil || len(p.series[key].rates) == 0 {
		return ""
	}
	rates := p.series[key].rates
	return rateText(rates[len(rates)-1])
}

// spark draws the rates from zero to the highest of them.
func (p *past) spark(key string) string {
	if p == nil || p.series[key] == nil {
		return ""
	}
	bars, most := []rune("▁▂▃▄▅▆▇█"), 0.0
	for _, r := range p.series[key].rates {
		most = max(most, r)
	}
	var line []rune
	for _, r := range p.series[key].rates {
		bar := 0
		if most > 0 && r > 0 {
			bar = 1 + int(r/most*float64(len(bars)-2)+0.5)
		}
		line = append(line, bars[min(max(bar, 0), len(bars)-1)])
	}
	return string(line)
}
