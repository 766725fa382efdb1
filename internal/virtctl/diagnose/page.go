package diagnose

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"drydock.dev/drydock/internal/virtctl/diagnose/findings"
	"drydock.dev/drydock/internal/virtctl/env"
)

// page is the text for the user, and the file diagnosis.txt.
type page struct {
	found         []findings.Finding
	missing       []string
	objects, logs int
	output        string
	again         string
	now           time.Time
}

func (p *page) String() string {
	var text strings.Builder
	wrong := p.wrong()
	p.list(&text, wrong, "Nothing is found wrong.", fmt.Sprintf("Found wrong (%d):", len(wrong)))
	p.list(&text, p.found[len(wrong):], "", "Worth knowing:")
	if len(p.missing) > 0 {
		fmt.Fprintln(&text, "Not collected:")
		for _, missing := range p.missing {
			fmt.Fprintf(&text, "  %s\n", env.Plain(missing))
		}
		fmt.Fprintln(&text)
	}
	fmt.Fprintf(&text, "In %s: objects %d, logs %d; without Secrets, cloud-init, environments and other values that may be secret.\n", env.Plain(p.output), p.objects, p.logs)
	fmt.Fprintf(&text, "The same again: %s\n", env.Plain(p.again))
	return text.String()
}

// wrong returns the findings that are no notices, which come first.
func (p *page) wrong() []findings.Finding {
	for i := range p.found {
		if p.found[i].Notice {
			return p.found[:i]
		}
	}
	return p.found
}

func (p *page) list(text *strings.Builder, found []findings.Finding, none, title string) {
	if len(found) == 0 {
		if none != "" {
			fmt.Fprintf(text, "%s\n\n", none)
		}
		return
	}
	fmt.Fprintln(text, title)
	for i := range found {
		f := &found[i]
		since := ""
		if !f.Since.IsZero() {
			since = ", for " + duration.HumanDuration(max(0, p.now.Sub(f.Since)))
		}
		fmt.Fprintf(text, "  %s: %s%s\n    %s\n", env.Plain(f.About), f.Check, since, env.Plain(f.Says))
		if f.Runbook != "" {
			fmt.Fprintf(text, "    see docs/runbooks/%s.md\n", f.Runbook)
		}
	}
	fmt.Fprintln(text)
}
