package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const ignition = `{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","passwordHash":"` + secret + `"}]}}`

// machine is a VM with cloud-init.
func machine(namespace, userData string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"namespace": namespace},
		"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"cloudInitNoCloud": map[string]any{"userData": userData}}}}}},
	}
}

func failure(message string) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{"type": "Failure", "message": message}}}
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestATextDoesNotQuoteWhatIsWithheld has the ways in which a text may quote cloud-init.
func TestATextDoesNotQuoteWhatIsWithheld(t *testing.T) {
	long := strings.Repeat("y ", 2100) + secret
	for name, c := range map[string]struct{ userData, text string }{
		"Ignition, quoted by Go":          {ignition, fmt.Sprintf("userData: Invalid value: %q: too long", ignition)},
		"Ignition in a log of JSON":       {ignition, jsonOf(t, map[string]string{"msg": "bad " + ignition})},
		"JSON in JSON":                    {"a\n" + secret, jsonOf(t, jsonOf(t, jsonOf(t, "a\n"+secret)))},
		"an assignment":                   {"#!/bin/sh\nexport PASSWORD=" + secret + "\n", "PASSWORD: " + secret},
		"chpasswd":                        {"chpasswd:\n  list: |\n    root:" + secret + "\n", "bad password " + secret},
		"sysprep":                         {"<Password><Value>" + secret + "</Value></Password>", "password " + secret},
		"what JSON escapes":               {"password: <" + secret + ">x", jsonOf(t, "password: <"+secret+">")},
		"a backslash":                     {"password: \"a\\" + secret + "\"", fmt.Sprintf("%q", "password: \"a\\"+secret+"\"")},
		"a sentence's end":                {"password: " + secret, "It is " + secret + "."},
		"a text that was cut":             {"password: " + secret + "-and-more", "userData: Invalid value: password: " + secret + "-and-m"},
		"a text that was cut in the word": {"password: " + secret, "password: " + secret[:10]},
		"a text that was cut, quoted":     {"password: " + secret, `{"msg":"password: ` + secret[:10] + `…"}`},
		"a long line":                     {long, long},
		"cloud-init as JSON":              {jsonOf(t, map[string]string{"x": "a\n" + secret}), "a " + secret},
		"cloud-init in base 64":           {base64.StdEncoding.EncodeToString([]byte("password: " + secret)), secret},
		"characters of a terminal":        {"\x1b[1m" + secret, "\x1b[1m" + secret},
		"a password in an address":        {"curl https://ann:" + secret + "@h/d", "401 for user ann:" + secret + " at h/d"},
		"a number":                        {"pin: 1234-5678-9012", "the pin 1234-5678-9012 is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			r := New()
			r.Keep("virtualmachines.kubevirt.io", machine("lab", c.userData))
			if out := r.Text(c.text); strings.Contains(out, secret[:8]) || strings.Contains(out, "5678") || !strings.Contains(out, Withheld) {
				t.Errorf("left: %s", out)
			}
		})
	}
}

// TestObjectsDoNotQuoteEachOther keeps the object with the secret last: texts are redacted when all are known.
func TestObjectsDoNotQuoteEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		kind   string
		object map[string]any
	}{
		"a clone":   {"virtualmachineclones.clone.kubevirt.io", map[string]any{"status": failure(`userData: Invalid value: "password: ` + secret + `"`)}},
		"a restore": {"virtualmachinerestores.snapshot.kubevirt.io", map[string]any{"status": failure("denied: " + secret)}},
		"a clone's own patch": {"virtualmachineclones.clone.kubevirt.io", map[string]any{
			"spec": map[string]any{"patches": []any{`{"op":"add","path":"/spec/x","value":"` + secret + `"}`}}, "status": failure(`Invalid value: "` + secret + `"`),
		}},
		"its own words beyond the bound of a text": {"virtualmachines.kubevirt.io", map[string]any{"status": failure(strings.Repeat("x ", 2038) + secret + "-and-more")}},
		"a pod's own environment": {"pods", map[string]any{
			"spec":   map[string]any{"containers": []any{map[string]any{"env": []any{map[string]any{"name": "P", "value": secret}}}}},
			"status": map[string]any{"message": "P=" + secret},
		}},
		"an address that is none": {"datavolumes.cdi.kubevirt.io", map[string]any{
			"spec":   map[string]any{"source": map[string]any{"http": map[string]any{"url": "ann:" + secret + "@host/d"}}},
			"status": failure(`url: Invalid value: "ann:` + secret + `@host/d": must be an address`),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := New()
			kept := r.Keep(c.kind, c.object)
			r.Keep("virtualmachinesnapshotcontents.snapshot.kubevirt.io", map[string]any{
				"spec": map[string]any{"source": map[string]any{"virtualMachine": machine("lab", "password: "+secret+"-and-more "+secret)}},
			})
			if out := encoded(t, r.Finish(kept)); strings.Contains(out, secret[:6]) || !strings.Contains(out, "message") {
				t.Errorf("left: %s", out)
			}
		})
	}
}

func TestAnAddressIsCutWhateverIsInIt(t *testing.T) {
	for name, text := range map[string]string{
		"an apostrophe":               "Get https://host/d?sig=x'" + secret + " failed",
		"an apostrophe in a password": "Get https://ann:x'" + secret + "@host/d failed",
		"slashes that JSON escapes":   `https:\/\/ann:` + secret + `@h`,
	} {
		t.Run(name, func(t *testing.T) {
			if out := New().Text(text); strings.Contains(out, secret) {
				t.Errorf("left: %s", out)
			}
		})
	}
	r := New()
	r.Keep("datavolumes.cdi.kubevirt.io", parsed(t, "spec: {source: {http: {url: 'https://ann:"+secret+"@h/d'}}}"))
	if out := r.Text("401 for user ann:" + secret + " at h/d"); strings.Contains(out, secret) {
		t.Errorf("left: %s", out)
	}
}

func TestOrdinaryWordsStay(t *testing.T) {
	r := New()
	r.Keep("virtualmachines.kubevirt.io", parsed(t, `
metadata:
  name: web-12345678
  namespace: lab
  uid: 8c4c1111-2222-3333-4444-555566667777
  creationTimestamp: "2026-11-30T10:00:00Z"
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"web-12345678"},"spec":{"terminationGracePeriodSeconds":1}}'}
apiVersion: kubevirt.io/v1
kind: VirtualMachine
spec: {template: {spec: {volumes: [{cloudInitNoCloud: {userData: "a: virt-handler\nb: connection refused\nc: /usr/lib/systemd"}}]}}}
`))
	for _, text := range []string{
		`virt-handler: connection refused: VirtualMachine.kubevirt.io "web-12345678" is in /usr/lib/systemd`,
		"kubevirt.io/v1 8c4c1111-2222-3333-4444-555566667777 2026-11-30T10:00:00Z terminationGracePeriodSeconds",
	} {
		if got := r.Text(text); got != text {
			t.Errorf("got %s", got)
		}
	}
}

func many(name string, number int) string {
	var text strings.Builder
	for i := range number {
		fmt.Fprintf(&text, "%s-%08d\n", name, i)
	}
	return text.String()
}

// TestOneTenantDoesNotBlindAll checks that only the texts of a namespace with too many values are withheld.
func TestOneTenantDoesNotBlindAll(t *testing.T) {
	r := New()
	for i := range 3 {
		r.Keep("virtualmachines.kubevirt.io", machine("noisy", many(fmt.Sprint(i), maxOfOne/2)))
	}
	r.Keep("virtualmachines.kubevirt.io", machine("lab", "password: "+secret))
	if got := r.TextOf("noisy", "anything"); got != Withheld {
		t.Errorf("in the namespace: %q", got)
	}
	if got := r.TextOf("lab", "virt-controller leads, "+secret); got != "virt-controller leads, "+Withheld {
		t.Errorf("elsewhere: %q", got)
	}
	if why := r.why; len(why) != 1 || why["noisy"] == "" {
		t.Errorf("withheld: %v", why)
	}
}

// TestHostileTextsAreReadInLinearTime gives each text far more time than it needs; a quadratic search would take hours.
func TestHostileTextsAreReadInLinearTime(t *testing.T) {
	var starts strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&starts, "%s%d\n", strings.Repeat("a", i+8), i)
	}
	r := New()
	r.Keep("virtualmachines.kubevirt.io", machine("lab", starts.String()))
	for name, text := range map[string]string{
		"one word":         strings.Repeat("a", 4<<20),
		"mixed words":      strings.Repeat("a1-B", 1<<20),
		"backslashes":      strings.Repeat(`\`, 4<<20),
		"colons":           strings.Repeat("http:", 1<<20),
		"addresses":        strings.Repeat("a://", 1<<20),
		"an ordinary log":  strings.Repeat("2026-11-30T10:00:00.123456789Z level=info vmi=lab/web/8c4c1111-2222 the guest runs on node-17\n", 40_000),
		"beginnings alone": strings.Repeat("aaaaaaaa\n", 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			r.Text(text)
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestLogsOfComponents keeps the lines about the machine lab/web, and those about none.
func TestLogsOfComponents(t *testing.T) {
	r := New()
	r.Keep("virtualmachines.kubevirt.io", machine("lab", "password: "+secret))
	r.WithholdOthers("only this one is read", "lab", "drydock")
	r.Withhold("noisy", "it has too many")
	const at = "2026-11-30T10:00:00.5Z "
	for line, want := range map[string]string{
		`I1130 "runs" vmi="lab/web/uid"`:                                    `I1130 "runs" vmi="lab/web/uid"`,
		`I1130 "runs" vmi="lab/other/uid"`:                                  "",
		`I1130 "runs" vmi="else/web/uid"`:                                   "",
		`{"msg":"runs","vmi":{"namespace":"lab","name":"web","uid":"x"}}`:   `{"msg":"runs","vmi":{"namespace":"lab","name":"web","uid":"x"}}`,
		`{"msg":"runs","vmi":{"namespace":"lab","name":"other","uid":"x"}}`: "",
		`{"msg":"runs","vm":{"name":"web","namespace":"else"}}`:             "",
		`"Reconciled" VirtualMachine="else/web" namespace="else"`:           "",
		`"Reconciled" VirtualMachineInstanceMigration="else/m"`:             "",
		`"Reconciled" namespace="drydock" name="kubevirt"`:                  `"Reconciled" namespace="drydock" name="kubevirt"`,
		"the namespace is missing, and a vmi waits":                         "the namespace is missing, and a vmi waits",
		"listing pods of noisy/web failed":                                  "",
		"listing: " + secret:                                                "listing: " + Withheld,
	} {
		if want != "" {
			want = at + want + "\n"
		} else {
			want = "(1 lines about other machines are left out)\n"
		}
		if got := r.Log(at+line+"\n", func(namespace, name string) bool { return namespace == "lab" && name != "" && name != "web" }); got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
	if got := r.Gaps(); len(got) != 2 {
		t.Errorf("the gaps are %q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("password: "+secret, `a \u00`+"\xff"+`://x\/`)
	f.Fuzz(func(t *testing.T, userData, text string) {
		r := New()
		r.Keep("virtualmachines.kubevirt.io", machine("lab", userData))
		if out := r.Text(text + " " + secret); strings.Contains(userData, " "+secret+" ") && strings.Contains(out, secret) {
			t.Errorf("left: %q", out)
		}
	})
}
