package corpus

import (
	"slices"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/rules/vm/commontypes"
)

func TestEachShapeIsThereOnce(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	shapes, booted := map[string]string{}, 0
	for _, m := range all {
		if other, twice := shapes[m.Shape]; twice {
			t.Errorf("%s and %s have the same shape: %s", other, m.Name, m.Shape)
		}
		shapes[m.Shape] = m.Name
		if len(m.Guest) > 0 {
			booted++
		}
	}
	if len(all) < 60 || booted < 20 {
		t.Errorf("there are %d manifests and guests for %d of them, want at least 60 and 20", len(all), booted)
	}
}

// everywhere are objects that every cluster with Drydock has, beside the common types and preferences.
var everywhere = []string{"ServiceAccount default", "PriorityClass system-cluster-critical"}

// Needs must list every missing object.
func TestEachManifestSaysWhatItNeeds(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	common := slices.Clone(everywhere)
	for _, instancetype := range commontypes.Instancetypes() {
		common = append(common, "VirtualMachineClusterInstancetype "+instancetype.Name)
	}
	for _, preference := range commontypes.Preferences() {
		common = append(common, "VirtualMachineClusterPreference "+preference.Name)
	}
	for _, m := range all {
		missing, err := Missing(m.Text)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		missing = slices.DeleteFunc(missing, func(reference string) bool { return slices.Contains(common, reference) })
		if !slices.Equal(missing, m.Needs) {
			t.Errorf("%s says that it needs %q, and refers to %q", m.Name, m.Needs, missing)
		}
		for _, reference := range m.Needs {
			kind, _, _ := strings.Cut(reference, " ")
			refused, told := kind == "VirtualMachineInstance", strings.Contains(kind, "Instancetype") || strings.Contains(kind, "Preference")
			if refused && m.Verdict != Refused || told && m.Verdict == Accepted {
				t.Errorf("%s is %s without the %s", m.Name, m.Verdict, reference)
			}
		}
	}
}

func TestWhatAManifestBringsAlongIsNotMissing(t *testing.T) {
	const file = `kind: Secret
metadata: {name: data}
---
kind: DataVolume
metadata: {name: golden}
spec: {source: {registry: {url: "docker://a", secretRef: login}}, storage: {storageClassName: fast}}
---
kind: VirtualMachine
metadata: {name: vm}
spec:
  instancetype: {kind: VirtualMachineInstancetype, name: own}
  dataVolumeTemplates:
    - {metadata: {name: root}, spec: {sourceRef: {kind: DataSource, name: linux}}}
  template:
    spec:
      networks: [{name: a, multus: {networkName: lan}}]
      volumes:
        - {name: root, dataVolume: {name: root}}
        - {name: base, ephemeral: {persistentVolumeClaim: {claimName: golden}}}
        - {name: seed, cloudInitNoCloud: {secretRef: {name: data}, networkDataSecretRef: {name: net}}}
        - {name: more, dataVolume: {name: more}}
`
	want := []string{
		"DataSource linux", "DataVolume more", "NetworkAttachmentDefinition lan", "Secret login", "Secret net", "StorageClass fast",
		"VirtualMachineInstancetype own",
	}
	if got, err := Missing([]byte(file)); err != nil || !slices.Equal(got, want) {
		t.Errorf("missing is %q, %v, want %q", got, err, want)
	}
}

func TestHeadsThatSayTooLittleAreRefused(t *testing.T) {
	for head, want := range map[string]string{
		"kind: Pod":                                                   "no Shape",
		"# Shape: s\nkind: Pod":                                       "Verdict",
		"# Shape: s\n# Verdict: perhaps":                              `"perhaps"`,
		"# Shape: s\n# Verdict: refused":                              "refused with 0 lines",
		"# Shape: s\n# Verdict: accepted\n# Says: no":                 "accepted with 1 lines",
		"# Shape: s\n# Verdict: accepted\n# Beware: dog":              "Beware",
		"# Shape: s\n# Verdict: refused\n# Says: no\n# Guest: cpus 2": "no guest",
		"# Shape: s\n# Verdict: accepted\n# Drivers: hardware":        "needs no Drivers",
		"# Shape: s\n# Verdict: accepted\n# Drivers: all":             `"all"`,
	} {
		if _, err := parse([]byte(head)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", head, err, want)
		}
	}
}

func TestAHeadIsReadUpToTheFirstObject(t *testing.T) {
	m, err := parse([]byte("# Shape: a shape: with a colon\n# Verdict: warned\n# Says: spec.a: b\n# Guest: cpus 2\nkind: Pod\n# Shape: another\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Shape != "a shape: with a colon" || m.Verdict != Warned || m.Says[0] != "spec.a: b" || m.Guest[0] != (Fact{"cpus", "2"}) {
		t.Errorf("read %+v", m)
	}
}
