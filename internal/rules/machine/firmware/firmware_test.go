package firmware

import (
	"crypto/sha1"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

const given = types.UID("5d307ca9-b3ef-428c-8861-06e72d69f223")

func spec(uid types.UID) *v1.VirtualMachineInstanceSpec {
	s := &v1.VirtualMachineInstanceSpec{}
	if uid != "" {
		Set(s, uid)
	}
	return s
}

func got(s *v1.VirtualMachineInstanceSpec) types.UID {
	if s.Domain.Firmware == nil {
		return ""
	}
	return s.Domain.Firmware.UUID
}

func version(t *testing.T, uid types.UID) uuid.Version {
	t.Helper()
	u, err := uuid.Parse(string(uid))
	if err != nil {
		t.Fatalf("parsing UUID %q: %v", uid, err)
	}
	return u.Version()
}

// The numbers are those of the table in the enhancement that defines the persistence of firmware UUIDs.

func TestScenario1ExistingStoppedVMWithoutUUIDGetsLegacy(t *testing.T) {
	s := spec("")
	if !Persist(s, "cirros") || got(s) != Legacy("cirros") {
		t.Errorf("UUID is %q, want the legacy one %q", got(s), Legacy("cirros"))
	}
	if Persist(s, "cirros") {
		t.Error("a second call changed the spec again")
	}
}

func TestScenario2ExistingStoppedVMWithUUIDIsLeftAlone(t *testing.T) {
	s := spec(given)
	if Persist(s, "cirros") || got(s) != given {
		t.Errorf("UUID is %q, want %q untouched", got(s), given)
	}
}

func TestScenario3ExistingRunningVMWithoutUUIDGetsWhatItsGuestHas(t *testing.T) {
	// A guest that runs without a UUID in its spec was given the legacy one; the template must get the same, or the
	// guest changes at its next start.
	running := spec(Legacy("cirros"))
	template := spec("")
	Persist(template, "cirros")
	if got(template) != got(running) {
		t.Errorf("template has %q, its guest %q", got(template), got(running))
	}
}

func TestScenario4RestoreOfOldSnapshotGetsLegacy(t *testing.T) {
	s := spec("")
	if !Persist(s, "restored") || got(s) != Legacy("restored") {
		t.Errorf("UUID is %q, want the legacy one %q", got(s), Legacy("restored"))
	}
}

func TestScenario5NewStoppedVMWithoutUUIDGetsRandom(t *testing.T) {
	a, b := spec(""), spec("")
	if !Create(a) || !Create(b) {
		t.Fatal("a new VM without a UUID was left without one")
	}
	if version(t, got(a)) != 4 {
		t.Errorf("UUID %q is not a random one (version 4)", got(a))
	}
	if got(a) == got(b) {
		t.Errorf("two VMs of one name have the same UUID %q", got(a))
	}
}

func TestScenario6NewStoppedVMWithUUIDKeepsIt(t *testing.T) {
	s := spec(given)
	if Create(s) || got(s) != given {
		t.Errorf("UUID is %q, want %q untouched", got(s), given)
	}
}

func TestScenario7NewRunningVMKeepsWhatAdmissionGave(t *testing.T) {
	s := spec("")
	Create(s)
	atAdmission := got(s)
	// Started: the VM controller persists the UUID, and its VMI is admitted.
	if Persist(s, "cirros") || Create(s) || got(s) != atAdmission {
		t.Errorf("UUID is %q, want %q from admission", got(s), atAdmission)
	}
}

func TestScenario8RestoreOfNewSnapshotKeepsUUID(t *testing.T) {
	s := spec(given)
	if Persist(s, "restored") || got(s) != given {
		t.Errorf("UUID is %q, want %q from the snapshot", got(s), given)
	}
}

func TestScenario9UserChangesUUID(t *testing.T) {
	if err := ValidateUpdate(spec(given), spec(New()), field.NewPath("spec")); err != nil {
		t.Errorf("changing the UUID is refused: %v", err)
	}
}

func TestScenario10UserRemovesUUID(t *testing.T) {
	empty := spec("")
	empty.Domain.Firmware = &v1.Firmware{}
	const want = "spec.template.spec.domain.firmware.uuid: Forbidden: the firmware UUID can be changed but not removed; the VM has " + string(given)
	for _, without := range []*v1.VirtualMachineInstanceSpec{spec(""), empty} {
		err := ValidateUpdate(spec(given), without, field.NewPath("spec", "template", "spec"))
		if err == nil || err.Error() != want {
			t.Errorf("removing the UUID: %v\nwant %s", err, want)
		}
	}
	if err := ValidateUpdate(spec(""), spec(""), field.NewPath("spec")); err != nil {
		t.Errorf("an old VM without a UUID can't be updated: %v", err)
	}
}

func TestScenario11NewStandAloneVMIWithUUIDKeepsIt(t *testing.T) {
	s := spec(given)
	if Create(s) || got(s) != given {
		t.Errorf("UUID is %q, want %q untouched", got(s), given)
	}
}

func TestScenario12NewStandAloneVMIWithoutUUIDGetsRandom(t *testing.T) {
	s := spec("")
	if !Create(s) || version(t, got(s)) != 4 {
		t.Errorf("UUID is %q, want a random one", got(s))
	}
}

func TestScenario13OldBackupsAgreeWithOldGuests(t *testing.T) {
	// Releases that derived the UUID gave this one to a guest named "testvm". A change of this value would break every
	// backup from then.
	const want = types.UID("5a9fc181-957e-5c32-9e5a-2de5e9673531")
	if Legacy("testvm") != want {
		t.Errorf("legacy UUID is %q, want %q", Legacy("testvm"), want)
	}
	if version(t, Legacy("testvm")) != 5 {
		t.Error("legacy UUID is not name-based (version 5)")
	}
}

// rfc9562 returns the UUID of version 5 of a name, as section 5.5 of RFC 9562 defines it: the first 16 bytes of the
// SHA-1 of the name space's bytes and the name, with version and variant set.
func rfc9562(namespace [16]byte, name string) types.UID {
	sum := sha1.Sum(append(namespace[:], name...))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
}

func TestTheLegacyUUIDIsVersion5OfTheName(t *testing.T) {
	namespace := [16]byte{0x6a, 0x1a, 0x24, 0xa1, 0x40, 0x61, 0x46, 0x07, 0x8b, 0xf4, 0xa3, 0x96, 0x3d, 0x0c, 0x58, 0x95}
	for _, name := range []string{"vm-cirros", "testvm", "", "a", "0", "vm.with.dots", strings.Repeat("x", 63), strings.Repeat("y", 253)} {
		if got, want := Legacy(name), rfc9562(namespace, name); got != want {
			t.Errorf("the legacy UUID of %q is %s, want %s", name, got, want)
		}
	}
}

// TestNoTwoClustersGiveAUUIDTwice creates ten thousand VMs of the same names in each of two clusters.
func TestNoTwoClustersGiveAUUIDTwice(t *testing.T) {
	given := map[types.UID]string{}
	for _, cluster := range []string{"A", "B"} {
		for i := range 10_000 {
			s, name := spec(""), fmt.Sprintf("vm-%d in %s", i, cluster)
			Create(s)
			if other, there := given[got(s)]; there {
				t.Fatalf("%s and %s have the UUID %s", name, other, got(s))
			}
			given[got(s)] = name
		}
	}
}

func TestFormat(t *testing.T) {
	for text, ok := range map[types.UID]bool{
		given:                                    true,
		"5D307CA9-B3EF-428C-8861-06E72D69F223":   true,
		"5d307ca9b3ef428c886106e72d69f223":       false,
		"{5d307ca9-b3ef-428c-8861-06e72d69f223}": false,
		"cirros":                                 false,
	} {
		if err := ValidateFormat(spec(text), field.NewPath("spec")); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Once a UUID is set no rule may remove or replace it.
func TestUUIDIsStable(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		s := spec(rapid.SampledFrom([]types.UID{"", given}).Draw(t, "given"))
		var first types.UID
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			before := spec(got(s))
			if rapid.Bool().Draw(t, "create") {
				Create(s)
			} else {
				Persist(s, rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name"))
			}
			if first == "" {
				first = got(s)
			}
			if got(s) != first || ValidateUpdate(before, s, field.NewPath("spec")) != nil {
				t.Fatalf("UUID changed from %q to %q", first, got(s))
			}
		}
	})
}
