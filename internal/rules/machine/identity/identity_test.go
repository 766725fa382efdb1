package identity

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// A guest that meets its original must not be mistaken for it; one that replaces its original must be taken for it.
func TestWhatARestoreKeeps(t *testing.T) {
	for part, want := range map[Part][2]Rule{
		FirmwareUUID: {Keep, Renew}, Serial: {Keep, Keep}, Chassis: {Keep, Keep}, MachineType: {Keep, Keep},
		TemplateMAC: {Keep, Renew}, MasqueradeMAC: {Keep, Renew}, BridgeMAC: {Renew, Renew},
		DiskSerial: {Keep, Keep}, SCSIDeviceID: {Keep, Keep}, PCIAddress: {Keep, Keep},
		UEFIVariables: {Renew, Renew}, KeptVariables: {Keep, Keep}, TPMState: {Renew, Renew}, KeptTPMState: {Keep, Keep},
		CloudInstance: {Keep, Renew}, DriveInstance: {Keep, Renew}, Hostname: {Keep, Renew}, "a part that nobody knows": {None, None},
	} {
		if got := [2]Rule{Of(part, RestoreInPlace).Rule, Of(part, RestoreToNew).Rule}; got != want {
			t.Errorf("%s: restore in place and to a new VM say %v, want %v", part, got, want)
		}
	}
}

// A clone must have the identity of a new VM that meets its original, whatever its name; it must have its own serial,
// firmware state and TPM state.
func TestWhatACloneKeeps(t *testing.T) {
	for _, r := range table {
		want := Of(r.part, RestoreToNew).Rule
		if slices.Contains([]Part{Serial, KeptVariables, KeptTPMState}, r.part) {
			want = Renew
		}
		if got := Of(r.part, Clone).Rule; got != want {
			t.Errorf("%s: a clone says %s, want %s", r.part, got, want)
		}
	}
}

// All parts of the identity on the state's claim must go the same way.
func TestAVMsStateIsKeptOrRenewedAsAWhole(t *testing.T) {
	for verb := range verbs {
		variables, tpm := Of(KeptVariables, verb).Rule, Of(KeptTPMState, verb).Rule
		if variables != tpm {
			t.Errorf("%s: of the variables it says %s, of the TPM %s", titles[verb], variables, tpm)
		}
		if got, want := KeepsState(verb), verb != Clone; got != want {
			t.Errorf("%s: the state is kept: %v, want %v", titles[verb], got, want)
		}
	}
}

func TestARunningGuestIsNeverAnother(t *testing.T) {
	for _, r := range table {
		if got := Of(r.part, LiveMigration).Rule; got != Keep && got != None {
			t.Errorf("%s: a live migration says %s", r.part, got)
		}
		if got := Of(r.part, Upgrade).Rule; got != Keep && got != None {
			t.Errorf("%s: an upgrade says %s", r.part, got)
		}
	}
}

func TestEveryPartHasOneRowAndEveryVerbAnAnswer(t *testing.T) {
	seen := map[Part]bool{}
	for _, r := range table {
		if seen[r.part] || r.from == "" {
			t.Errorf("%s: has two rows, or comes from nowhere", r.part)
		}
		seen[r.part] = true
		for verb, a := range r.answers {
			if a.Rule == "" {
				t.Errorf("%s: nothing is said of %s", r.part, titles[verb])
			}
		}
	}
}

func TestThePageIsMadeAnewWithoutAChange(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	again, err := InPage(page)
	if err != nil || !bytes.Equal(again, page) {
		t.Errorf("make generate changes the page (%v)", err)
	}
	const row = "| MAC address otherwise, bridge | the pod's interface | renew: a new pod | – | keep | renew | renew | renew |\n"
	if !strings.Contains(string(again), row) {
		t.Errorf("the page has no row %q", row)
	}
	for name, page := range map[string]string{
		"a page without a place for the table":       "x",
		"a page in which the table does not end":     "x\n" + tableBegins + "x\n",
		"a page in which the table has no beginning": "x\n" + tableEnds + "x\n",
	} {
		if _, err := InPage([]byte(page)); err == nil {
			t.Errorf("%s is written", name)
		}
	}
}
