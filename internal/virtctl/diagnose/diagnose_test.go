package diagnose

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, text string) object {
	t.Helper()
	o := object{Unstructured: &unstructured.Unstructured{}}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNoSecretIsRead(t *testing.T) {
	for _, k := range slices.Concat(ofTheInstallation, ofTenants, ofKubernetes) {
		if k.resource == "secrets" || k.resource == "configmaps" || k.resource == "serviceaccounts" {
			t.Errorf("%s are read", k.name())
		}
	}
	for app, containers := range logged {
		if slices.Contains(containers, "guest-console-log") || app == "maintenance" {
			t.Errorf("logs of guests are read: %s %v", app, containers)
		}
	}
}

// TestWhatBelongsToOneMachine adds a VM and its VMI, and asks for other objects.
func TestWhatBelongsToOneMachine(t *testing.T) {
	s := newScope("web")
	s.add("virtualmachines.kubevirt.io", read(t, `
metadata: {name: web, namespace: lab, uid: vm}
spec:
  instancetype: {name: small}
  dataVolumeTemplates: [{metadata: {name: made}}]
  template: {spec: {volumes: [{persistentVolumeClaim: {claimName: root}}, {dataVolume: {name: data}}, {ephemeral: {persistentVolumeClaim: {claimName: base}}}, {cloudInitNoCloud: {userData: x}}]}}
`))
	s.add("virtualmachineinstances.kubevirt.io", read(t, `
metadata: {name: web, namespace: lab, uid: vmi}
status: {volumeStatus: [{persistentVolumeClaimInfo: {claimName: plugged}}]}
`))
	wants := map[string]func(*scope, object) bool{}
	for _, k := range slices.Concat(ofTenants, ofKubernetes) {
		if k.wants != nil {
			wants[k.name()] = k.wants
		}
	}
	for name, c := range map[string]struct {
		kind, object string
		want         bool
	}{
		"the VM":                          {"virtualmachines.kubevirt.io", "metadata: {name: web}", true},
		"another VM":                      {"virtualmachines.kubevirt.io", "metadata: {name: other}", false},
		"a replica set":                   {"virtualmachineinstancereplicasets.kubevirt.io", "metadata: {name: web}", false},
		"its migration":                   {"virtualmachineinstancemigrations.kubevirt.io", "spec: {vmiName: web}", true},
		"another's migration":             {"virtualmachineinstancemigrations.kubevirt.io", "spec: {vmiName: other}", false},
		"its claim":                       {"persistentvolumeclaims", "metadata: {name: root, namespace: lab}", true},
		"the claim of a DataVolume":       {"persistentvolumeclaims", "metadata: {name: data, namespace: lab}", true},
		"the claim of a template":         {"persistentvolumeclaims", "metadata: {name: made, namespace: lab}", true},
		"the claim of an ephemeral disk":  {"persistentvolumeclaims", "metadata: {name: base, namespace: lab}", true},
		"the claim of a plugged disk":     {"persistentvolumeclaims", "metadata: {name: plugged, namespace: lab}", true},
		"the same name elsewhere":         {"persistentvolumeclaims", "metadata: {name: root, namespace: else}", false},
		"its DataVolume":                  {"datavolumes.cdi.kubevirt.io", "kind: DataVolume\nmetadata: {name: data, namespace: lab}", true},
		"another DataVolume":              {"datavolumes.cdi.kubevirt.io", "kind: DataVolume\nmetadata: {name: other, namespace: lab}", false},
		"its volume":                      {"persistentvolumes", "spec: {claimRef: {name: root, namespace: lab}}", true},
		"another volume":                  {"persistentvolumes", "spec: {claimRef: {name: other, namespace: lab}}", false},
		"its snapshot":                    {"virtualmachinesnapshots.snapshot.kubevirt.io", "spec: {source: {name: web}}", true},
		"a restore of it":                 {"virtualmachinerestores.snapshot.kubevirt.io", "spec: {target: {name: web}}", true},
		"a clone of it":                   {"virtualmachineclones.clone.kubevirt.io", "spec: {source: {name: web}, target: {name: b}}", true},
		"a clone that makes it":           {"virtualmachineclones.clone.kubevirt.io", "spec: {source: {name: a}, target: {name: web}}", true},
		"its instance type":               {"virtualmachineinstancetypes.instancetype.kubevirt.io", "metadata: {name: small, namespace: lab}", true},
		"the cluster's":                   {"virtualmachineclusterinstancetypes.instancetype.kubevirt.io", "metadata: {name: small}", true},
		"another instance type":           {"virtualmachineclusterinstancetypes.instancetype.kubevirt.io", "metadata: {name: large}", false},
		"its pod":                         {"pods", "metadata: {namespace: lab, labels: {vm.kubevirt.io/name: web}}", true},
		"a pod that fills its disk":       {"pods", "metadata: {namespace: lab}\nspec: {volumes: [{persistentVolumeClaim: {claimName: data}}]}", true},
		"a pod that holds its disks":      {"pods", "metadata: {namespace: lab, labels: {kubevirt.io/maintenance-for: web}}", true},
		"another pod":                     {"pods", "metadata: {namespace: lab, labels: {vm.kubevirt.io/name: other}}", false},
		"its revision":                    {"controllerrevisions.apps", "metadata: {ownerReferences: [{uid: vm}]}", true},
		"another's revision":              {"controllerrevisions.apps", "metadata: {ownerReferences: [{uid: other}]}", false},
		"the quota of its namespace":      {"resourcequotas", "metadata: {namespace: lab}", true},
		"the quota of another":            {"resourcequotas", "metadata: {namespace: else}", false},
		"an event about it":               {"events", "involvedObject: {uid: vmi}", true},
		"an event about something else":   {"events", "involvedObject: {uid: other}", false},
		"an event about nothing":          {"events", "involvedObject: {}", false},
		"an event of a node, by its name": {"events", "involvedObject: {kind: Node, name: node1, uid: node1}", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wants[c.kind](s, read(t, c.object)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestTheCommandThatDoesTheSameAgainHasNoCredentials(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{"vm", "output", "namespace", "token", "password", "context"} {
		flags.String(name, "", "")
	}
	if err := flags.Parse([]string{"--token=secret", "--password=secret", "--vm=web", "--output=it's; rm -r", "--namespace=lab"}); err != nil {
		t.Fatal(err)
	}
	if got, want := command("kubectl virt", flags), `kubectl virt adm diagnose --namespace=lab --output='it'\''s; rm -r' --vm=web`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheNewestAuthorityOfAnEntryCounts(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bundle := certificate(t, at, at.Add(48*time.Hour)) + "junk\n" + certificate(t, at, at.Add(time.Hour))
	got := newest(map[string]string{"a": bundle, "b": "no certificate", "c": "-----BEGIN X-----\n-----END X-----\n"})
	want := []any{map[string]any{"entry": "a", "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-01-03T00:00:00Z"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func certificate(t *testing.T, from, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestArgumentsAreLinesOfJSON(t *testing.T) {
	got, err := arguments([]byte("\"-append\"\n\"a\\nb\"\n"))
	if diff := cmp.Diff([]string{"-append", "a\nb"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := arguments([]byte("what an older virt-launcher says")); err == nil {
		t.Error("a text that is no JSON is taken")
	}
}

// A pod that somebody has taken over may print anything.
func TestAReportOfQEMUsStateIsRedacted(t *testing.T) {
	c := newCollector(nil, nil, "web", "lab")
	text, err := c.state([]byte(`{"qemu": {"runState": "io-error", "cpus": 2, "drives": [{"device": "disk-root", "ioStatus": "failed", "readOnly": false}],
		"password": "geheim", "jobs": [{"id": "j", "type": "mirror", "status": "running", "key": "geheim"}]}, "process": {"residentKiB": 7}, "more": {"a": "geheim"}}`))
	const want = "more: (withheld)\nprocess:\n  residentKiB: 7\nqemu:\n  cpus: 2\n  drives:\n  - device: disk-root\n    ioStatus: failed\n    readOnly: false\n" +
		"  jobs:\n  - id: j\n    key: (withheld)\n    status: running\n    type: mirror\n  password: (withheld)\n  runState: io-error\n"
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := c.state([]byte("what an older virt-launcher says")); err == nil {
		t.Error("a text that is no JSON is taken")
	}
}
