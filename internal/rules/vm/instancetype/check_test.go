package instancetype

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

func parseQuantity(text string) resource.Quantity { return resource.MustParse(text) }

func TestTypesThatNoVMCanBeMadeOf(t *testing.T) {
	for text, want := range map[string]string{
		`{cpu: {guest: 2}, memory: {guest: 1Gi, maxGuest: 2Gi, overcommitPercent: 100}}`:              "",
		`{cpu: {guest: 4000000000}, memory: {guest: 1Gi}}`:                                            "",
		`{cpu: {guest: 0}, memory: {guest: 0, maxGuest: 2Gi, overcommitPercent: 15}}`:                 "",
		`{cpu: {guest: 1}, memory: {guest: -1Gi}}`:                                                    `spec.memory.guest: Invalid value: "-1Gi": must be an amount of memory: whole bytes, more than 0 and at most 16Ti`,
		`{cpu: {guest: 1}, memory: {guest: 1e30}}`:                                                    `spec.memory.guest: Invalid value: "1e+30": must be an amount of memory: whole bytes, more than 0 and at most 16Ti`,
		`{cpu: {guest: 1, maxSockets: 0}, memory: {guest: 1Gi}}`:                                      `spec.cpu.maxSockets: Invalid value: 0: must be greater than 0`,
		`{cpu: {guest: 1}, memory: {guest: 2Gi, maxGuest: 1Gi}}`:                                      `spec.memory.maxGuest: Invalid value: "1Gi": must not be less than memory.guest, which is 2Gi`,
		`{cpu: {guest: 1}, memory: {guest: 2Gi, overcommitPercent: -1}}`:                              `spec.memory.overcommitPercent: Invalid value: -1: must be between 0 and 100`,
		`{cpu: {guest: 1}, memory: {guest: 2Gi, overcommitPercent: 101}}`:                             `spec.memory.overcommitPercent: Invalid value: 101: must be between 0 and 100`,
		`{cpu: {guest: 1}, memory: {guest: 2Gi, overcommitPercent: 1, hugepages: {pageSize: 2Mi}}}`:   `spec.memory.overcommitPercent: Forbidden: hugepages can't be overcommitted`,
		`{cpu: {guest: 1}, memory: {guest: 2Gi}, annotations: {` + hotplug.RecordAnnotation + `: x}}`: `spec.annotations[` + hotplug.RecordAnnotation + `]: Forbidden: only Drydock's components keep this record of a VMI's volumes`,
	} {
		if got := said(CheckType(parse[instancetypev1.VirtualMachineInstancetypeSpec](t, text))); got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", text, got, want)
		}
	}
	big := typeOf(t, `{cpu: {guest: 1}, memory: {guest: 1Gi}}`).Type
	big.NodeSelector = map[string]string{}
	for i := range 4000 {
		big.NodeSelector["label-"+strings.Repeat("x", i%40)+string(rune('a'+i%26))+strings.Repeat("y", i/1000)] = strings.Repeat("v", 60)
	}
	if got := said(CheckType(big)); !strings.HasPrefix(got, "spec: Too long: may not be more than 65536 bytes") {
		t.Errorf("a type that is too big: %q", got)
	}
}

func TestPreferencesThatNoVMCanBeMadeOf(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads, ratio: 2}}}`: "",
		`{cpu: {preferredCPUTopology: heap}}`:                                                    `spec.cpu.preferredCPUTopology: Unsupported value: "heap": supported values: "any", "cores", "preferAny", "preferCores", "preferSockets", "preferSpread", "preferThreads", "sockets", "spread", "threads"`,
		`{cpu: {spreadOptions: {across: Dies}}}`:                                                 `spec.cpu.spreadOptions.across: Unsupported value: "Dies": supported values: "SocketsCores", "CoresThreads", "SocketsCoresThreads"`,
		`{cpu: {spreadOptions: {ratio: 0}}}`:                                                     `spec.cpu.spreadOptions.ratio: Invalid value: 0: must be greater than 0`,
		`{cpu: {spreadOptions: {across: CoresThreads, ratio: 3}}}`:                               `spec.cpu.spreadOptions.ratio: Invalid value: 3: must be 2 across CoresThreads: that is how many threads a core has`,
		`{firmware: {preferredUseBios: true, preferredEfi: {}}}`:                                 `spec.firmware.preferredUseBios: Forbidden: a guest has either a BIOS or EFI; prefer one of them`,
		`{firmware: {preferredUseBios: true, preferredUseEfi: true}}`:                            `spec.firmware.preferredUseBios: Forbidden: a guest has either a BIOS or EFI; prefer one of them`,
		`{preferredTerminationGracePeriodSeconds: -1}`:                                           `spec.preferredTerminationGracePeriodSeconds: Invalid value: -1: must not be negative`,
		`{requirements: {cpu: {guest: 0}, memory: {guest: "-1"}}}`: "spec.requirements.cpu.guest: Invalid value: 0: must be greater than 0\n" +
			`spec.requirements.memory.guest: Invalid value: "-1": must be an amount of memory: whole bytes, more than 0 and at most 16Ti`,
		`{annotations: {` + hotplug.RecordAnnotation + `: x}}`: `spec.annotations[` + hotplug.RecordAnnotation + `]: Forbidden: only Drydock's components keep this record of a VMI's volumes`,
	} {
		if got := said(CheckPreference(parse[instancetypev1.VirtualMachinePreferenceSpec](t, text))); got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", text, got, want)
		}
	}
}

// A revision may hold anything: it must be refused at its use if admission would have refused it.
func TestAMalformedTypeIsNotUsed(t *testing.T) {
	_, errs := Expand(vmOf(t, `{domain: {}}`), Used{
		Type:       typeOf(t, `{cpu: {guest: 1, maxSockets: 0}, memory: {guest: 1Gi}}`),
		Preference: &Source{Kind: KindClusterPreference, Name: "p", Preference: &instancetypev1.VirtualMachinePreferenceSpec{Annotations: map[string]string{hotplug.RecordAnnotation: ""}}},
	}, "")
	want := "spec.instancetype: Forbidden: the instance type t (VirtualMachineInstancetype) can't be used: spec.cpu.maxSockets: Invalid value: 0: must be greater than 0\n" +
		"spec.preference: Forbidden: the preference p (VirtualMachineClusterPreference) can't be used: spec.annotations[" + hotplug.RecordAnnotation + "]: Forbidden: only Drydock's components keep this record of a VMI's volumes"
	if got := said(errs); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestDeprecatedFieldsAreNamed(t *testing.T) {
	p := parse[instancetypev1.VirtualMachinePreferenceSpec](t, `{cpu: {preferredCPUTopology: preferCores}, firmware: {preferredUseEfi: true, preferredUseSecureBoot: true}}`)
	warnings := DeprecatedPreference(p)
	if len(warnings) != 3 || warnings[0] != "spec.cpu.preferredCPUTopology: preferCores is deprecated: write cores" {
		t.Errorf("%q", warnings)
	}
	if w := DeprecatedPreference(&instancetypev1.VirtualMachinePreferenceSpec{}); len(w) != 0 {
		t.Errorf("%q", w)
	}
}

func TestWarningsAboutATypeThatIsStored(t *testing.T) {
	for text, want := range map[string]string{
		`{cpu: {guest: 0}, memory: {guest: 1Gi}}`:                            "",
		`{cpu: {guest: 1}, memory: {guest: 0}}`:                              "spec.memory.guest is 0: a VM with this instance type can't start",
		`{cpu: {guest: 1}, memory: {guest: 1Gi}, launchSecurity: {sev: {}}}`: "spec.launchSecurity is deprecated: a preference has preferredLaunchSecurity",
	} {
		if got := strings.Join(WarnType(parse[instancetypev1.VirtualMachineInstancetypeSpec](t, text)), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
