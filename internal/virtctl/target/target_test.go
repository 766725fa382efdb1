package target

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Target{
		"vm/cirros":                       {Kind: "vm", Name: "cirros"},
		"vmi/cirros":                      {Kind: "vmi", Name: "cirros"},
		"virtualmachines/cirros":          {Kind: "vm", Name: "cirros"},
		"virtualmachineinstance/cirros":   {Kind: "vmi", Name: "cirros"},
		"vmi/cirros/lab":                  {Kind: "vmi", Name: "cirros", Namespace: "lab"},
		"vmi/node1.example.com":           {Kind: "vmi", Name: "node1.example.com"},
		"vm/db.example.com/lab":           {Kind: "vm", Name: "db.example.com", Namespace: "lab"},
		"guest@vm/cirros":                 {User: "guest", Kind: "vm", Name: "cirros"},
		"ann@corp.example@vmi/cirros/lab": {User: "ann@corp.example", Kind: "vmi", Name: "cirros", Namespace: "lab"},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseLogin(text)
			if err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestParseRefusesWithTheSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"cirros":        "says no type",
		"pod/cirros":    `unknown type "pod"`,
		"vm/":           "empty name",
		"vm/a/b/c":      "too many slashes",
		"vm/cirros/":    "empty namespace",
		"@vm/cirros":    "empty user name",
		"guest@cirros":  "says no type",
		"":              "says no type",
		"guest@pod/cir": `unknown type "pod"`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseLogin(text)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), Syntax) {
				t.Errorf("got %v; want an error with %q and the syntax", err, want)
			}
		})
	}
}

func FuzzParseLogin(f *testing.F) {
	f.Add("guest@vm/cirros/lab")
	f.Add("vmi/a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseLogin(text)
		if err != nil {
			return
		}
		again, err := Parse(parsed.In("default").String())
		if err != nil {
			t.Fatalf("%q parses to %+v, which does not parse again: %v", text, parsed, err)
		}
		again.User = parsed.User
		if again != parsed.In("default") {
			t.Errorf("%q parses to %+v, and then to %+v", text, parsed, again)
		}
	})
}
