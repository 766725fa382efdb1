package cloneright

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func template(source cdiv1.DataVolumeSpec) v1.DataVolumeTemplateSpec {
	return v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: source}
}

func claimIn(namespace string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}}
}

func snapshotIn(namespace string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "golden"}}}
}

func imageIn(namespace string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &namespace, Name: "golden"}}
}

func vmOf(note string, sources ...cdiv1.DataVolumeSpec) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
	for _, source := range sources {
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, template(source))
	}
	if note != "" {
		vm.Annotations = map[string]string{layout.AnnCloneWriters: note}
	}
	return vm
}

// Only virt-api may set the note about the writer of a VM's sources, and it must stay as long as the source does.
func TestWhoWroteASourceIsNoted(t *testing.T) {
	const (
		byAnn  = `{"pvc/theirs/golden":{"username":"ann","uid":"7","groups":["staff"]}}`
		byBob  = `{"pvc/theirs/golden":{"username":"bob"}}`
		forged = `{"pvc/theirs/golden":{"username":"admin"}}`
	)
	ann := authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"staff"}, Extra: map[string]authenticationv1.ExtraValue{"token": {"secret"}}}
	bob := authenticationv1.UserInfo{Username: "bob"}
	for name, test := range map[string]struct {
		vm, old *v1.VirtualMachine
		fresh   []int
		user    authenticationv1.UserInfo
		want    string
	}{
		"a new VM":                                {vmOf("", claimIn("theirs")), nil, []int{0}, ann, byAnn},
		"a new VM that says something else":       {vmOf(forged, claimIn("theirs")), nil, []int{0}, ann, byAnn},
		"a new VM that clones nothing":            {vmOf(forged), nil, nil, ann, ""},
		"what is beside it needs no right":        {vmOf("", claimIn("ours"), claimIn("")), nil, []int{0, 1}, ann, ""},
		"a snapshot":                              {vmOf("", snapshotIn("theirs")), nil, []int{0}, bob, `{"snapshot/theirs/golden":{"username":"bob"}}`},
		"a DataSource":                            {vmOf("", imageIn("theirs")), nil, []int{0}, bob, `{"sourceRef/theirs/golden":{"username":"bob"}}`},
		"somebody else changes another field":     {vmOf(byAnn, claimIn("theirs")), vmOf(byAnn, claimIn("theirs")), nil, bob, byAnn},
		"somebody else drops the note":            {vmOf("", claimIn("theirs")), vmOf(byAnn, claimIn("theirs")), nil, bob, byAnn},
		"somebody else forges the note":           {vmOf(forged, claimIn("theirs")), vmOf(byAnn, claimIn("theirs")), nil, bob, byAnn},
		"somebody else writes the template again": {vmOf(byAnn, claimIn("theirs")), vmOf(byAnn, claimIn("theirs")), []int{0}, bob, byBob},
		"the source goes":                         {vmOf(byAnn, claimIn("ours")), vmOf(byAnn, claimIn("theirs")), []int{0}, bob, ""},
		"a VM of an earlier version has no note":  {vmOf(forged, claimIn("theirs")), vmOf("", claimIn("theirs")), nil, bob, ""},
		"a note that can't be read is none":       {vmOf("", claimIn("theirs")), vmOf("{", claimIn("theirs")), nil, bob, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := NoteWriters(test.vm, test.old, "ours", test.fresh, test.user); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.vm.Annotations[layout.AnnCloneWriters]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A user may have more groups than fit into an object's note, which must keep the first of them.
func TestTheNoteOfAWriterIsBounded(t *testing.T) {
	user := authenticationv1.UserInfo{Username: "ann"}
	for i := range 10_000 {
		user.Groups = append(user.Groups, fmt.Sprintf("group-%d-%s", i, strings.Repeat("x", 100)))
	}
	vm := vmOf("", claimIn("theirs"))
	if err := NoteWriters(vm, nil, "ours", []int{0}, user); err != nil {
		t.Fatal(err)
	}
	if length := len(vm.Annotations[layout.AnnCloneWriters]); length > 10<<10 || length < 1<<10 {
		t.Errorf("the note has %d bytes", length)
	}
}

func TestWhoseRightADataVolumeIsMadeWith(t *testing.T) {
	vm := vmOf("", claimIn("theirs"))
	if err := NoteWriters(vm, nil, "ours", []int{0}, authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"staff"}}); err != nil {
		t.Fatal(err)
	}
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ours"}, Spec: claimIn("theirs")}
	user, noted := Writer(vm, dv)
	if diff := cmp.Diff(authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"staff"}}, user); !noted || diff != "" {
		t.Errorf("noted: %v, as %s", noted, diff)
	}
	dv.Spec = claimIn("others")
	if user, noted := Writer(vm, dv); noted {
		t.Errorf("of another source it is noted that %+v wrote it", user)
	}
}
