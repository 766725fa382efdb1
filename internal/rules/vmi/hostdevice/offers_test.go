package hostdevice

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// free returns a device that can be passed, in the group of its own number.
func free(address, group string) Found {
	return Found{Address: address, Kind: "10de:1eb8", Class: "0x030200", Driver: Driver, Group: group, NUMA: 1, Node: true}
}

func edited(f Found, edit func(*Found)) Found {
	edit(&f)
	return f
}

var local = Permitted{{Name: card, Selectors: []string{"10de:1eb8", "10de:20b5"}}, {Name: "example.com/nic", Selectors: []string{"8086:1521"}}}

func TestWhichDevicesAreOffered(t *testing.T) {
	a, b := free("0000:03:00.0", "7"), free("0000:65:00.0", "9")
	is := func(f Found, ill string) Offer { return Offer{f.Address, f.Group, f.NUMA, ill} }
	for name, c := range map[string]struct {
		found []Found
		want  []Offer
	}{
		"none":               {},
		"two, by address":    {[]Found{b, a}, []Offer{is(a, ""), is(b, "")}},
		"of the other kind":  {[]Found{edited(a, func(f *Found) { f.Kind = "10de:20b5" })}, []Offer{is(a, "")}},
		"of no kind":         {found: []Found{edited(a, func(f *Found) { f.Kind = "10de:1eb9" })}},
		"the node's own":     {found: []Found{edited(a, func(f *Found) { f.Driver = "nvidia" })}},
		"without a driver":   {found: []Found{edited(a, func(f *Found) { f.Driver = "" })}},
		"without a group":    {found: []Found{edited(a, func(f *Found) { f.Group = "" })}},
		"without its node":   {found: []Found{edited(a, func(f *Found) { f.Node = false })}},
		"two in one group":   {[]Found{edited(a, func(f *Found) { f.Address = "0000:03:00.1" }), a}, []Offer{is(a, "")}},
		"beside a bridge":    {[]Found{a, {Address: "0000:02:00.0", Class: "0x060400", Driver: "pcieport", Group: "7"}}, []Offer{is(a, "")}},
		"beside an idle one": {[]Found{a, {Address: "0000:03:00.1", Class: "0x040300", Group: "7"}}, []Offer{is(a, "")}},
		"beside a stub":      {[]Found{a, {Address: "0000:03:00.1", Class: "0x040300", Driver: "pci-stub", Group: "7"}}, []Offer{is(a, "")}},
		"beside one of VFIO": {[]Found{a, {Address: "0000:03:00.1", Class: "0x040300", Driver: "vfio-pci", Group: "7"}}, []Offer{is(a, "")}},
		"beside one that the node uses": {[]Found{a, b, {Address: "0000:03:00.1", Class: "0x040300", Driver: "snd_hda_intel", Group: "7"}},
			[]Offer{is(a, "0000:03:00.1, in the same IOMMU group 7, has the driver snd_hda_intel"), is(b, "")}},
		"beside one that the node uses, after one of another group": {[]Found{{Address: "0000:01:00.0", Class: "0x040300", Driver: "ahci", Group: "1"}, a, {Address: "0000:03:00.1", Class: "0x040300", Driver: "nouveau", Group: "7"}},
			[]Offer{is(a, "0000:03:00.1, in the same IOMMU group 7, has the driver nouveau")}},
	} {
		got := Offers(local, c.found, nil)
		if diff := cmp.Diff(c.want, got[card]); diff != "" || len(got) > 1 {
			t.Errorf("%s: %d resources (-want +got):\n%s", name, len(got), diff)
		}
	}
}

func TestADeviceThatWasOfferedRemains(t *testing.T) {
	a, b := free("0000:03:00.0", "7"), free("0000:65:00.0", "9")
	before := Offers(local, []Found{a, b}, nil)
	for name, c := range map[string]struct {
		found []Found
		ill   string
	}{
		"gone":              {[]Found{b}, "the device is gone"},
		"of another driver": {[]Found{b, edited(a, func(f *Found) { f.Driver = "nvidia" })}, "the device has the driver nvidia"},
		"of no driver":      {[]Found{b, edited(a, func(f *Found) { f.Driver = "" })}, "the device has no driver"},
		"without its node":  {[]Found{b, edited(a, func(f *Found) { f.Node = false })}, "/dev/vfio has no device of its group"},
		"without its group": {[]Found{b, edited(a, func(f *Found) { f.Group = "" })}, "/dev/vfio has no device of its group"},
		"of another kind":   {[]Found{b, edited(a, func(f *Found) { f.Kind = "10de:ffff" })}, "the device is not one of this resource any more"},
		"back":              {[]Found{a, b}, ""},
	} {
		after := Offers(local, c.found, before)
		if got := after[card]; len(got) != 2 || got[0].Ill != c.ill || got[0].Address != a.Address || got[1].Ill != "" {
			t.Errorf("%s: %+v", name, got)
		}
		// Another look finds the same, and the device comes back.
		if again := Offers(local, c.found, after); !slices.Equal(again[card], after[card]) {
			t.Errorf("%s, looked at again: %+v, was %+v", name, again[card], after[card])
		}
		if back := Offers(local, []Found{a, b}, after); !slices.Equal(back[card], before[card]) {
			t.Errorf("%s, and back: %+v", name, back[card])
		}
	}
	if left := Offers(local[1:], []Found{a, b}, before); len(left) != 0 {
		t.Errorf("what is not permitted any more is offered: %+v", left)
	}
}

// A guest may have the group by the device that was offered first. A second one must not be offered beside it.
func TestAGroupIsOfferedByTheSameDevice(t *testing.T) {
	second := free("0000:03:00.1", "7")
	first := edited(second, func(f *Found) { f.Address = "0000:03:00.0" })
	before := Offers(local, []Found{second}, nil)
	if after := Offers(local, []Found{first, second}, before); len(after[card]) != 1 || after[card][0].Address != second.Address {
		t.Errorf("a device of its group is bound later: %+v", after[card])
	}
	if after := Offers(local, []Found{first}, before); len(after[card]) != 1 || after[card][0].Address != first.Address {
		t.Errorf("the device has left its group: %+v", after[card])
	}
}
