package datavolume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func referring(edits ...func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	dv := newDV(cdiv1.DataVolumeSource{}, append([]func(*cdiv1.DataVolume){annotated(AnnCloneAllowed, "sourceRef/golden/debian")}, edits...)...)
	dv.Spec.Source = nil
	dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: new("golden"), Name: "debian"}
	return dv
}

func leadingTo(source cdiv1.DataSourceSource) *cdiv1.DataSource {
	return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "debian"}, Spec: cdiv1.DataSourceSpec{Source: source}}
}

func TestADataSourceLeadsToWhatIsBesideIt(t *testing.T) {
	for name, test := range map[string]struct {
		source *cdiv1.DataSource
		to     string
		says   string
	}{
		"a claim":                   {leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "image"}}), "pvc/golden/image", ""},
		"a claim without namespace": {leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "image"}}), "pvc/golden/image", ""},
		"a snapshot":                {leadingTo(cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "image"}}), "snapshot/golden/image", ""},
		"what is elsewhere":         {leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "secret", Name: "image"}}), "", "CloneSourceNotAllowed: the DataSource golden/debian leads to namespace secret: a DataSource may lead to what is in its own namespace only"},
		"a snapshot elsewhere":      {leadingTo(cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "secret", Name: "image"}}), "", "CloneSourceNotAllowed: the DataSource golden/debian leads to namespace secret: a DataSource may lead to what is in its own namespace only"},
		"another DataSource":        {leadingTo(cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Name: "next"}}), "", "CloneSourceNotReady: the DataSource golden/debian leads to another DataSource, which Drydock does not follow: name the claim or snapshot"},
		"nothing yet":               {leadingTo(cdiv1.DataSourceSource{}), "", "CloneSourceNotReady: the DataSource golden/debian names neither a claim nor a snapshot yet"},
		"nothing, as there is none": {nil, "", "CloneSourceNotFound: the DataSource golden/debian does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			reference := ResolveReference(test.source, "golden", "debian")
			to := ""
			if reference.Source != nil {
				dv := referring()
				dv.Spec.Source = reference.Source
				to = chosen(dv)
			}
			said := ""
			if reference.Reason != "" {
				said = reference.Reason + ": " + reference.Message
			}
			if to != test.to || said != test.says {
				t.Errorf("it leads to %q and says %q", to, said)
			}
		})
	}
}

func TestADataVolumeWaitsForWhatItsDataSourceLeadsTo(t *testing.T) {
	immediate := class(storagev1.VolumeBindingImmediate)
	decideWith := func(dv *cdiv1.DataVolume, reference ResolvedReference, claim *corev1.PersistentVolumeClaim) Plan {
		o := Observed{DataVolume: dv, Reference: reference, Claim: claim, Class: immediate, Config: ConfigOf(nil), Now: noon}
		o.DataVolume.Spec.Source = reference.Source
		if reference.Source != nil {
			o.Source.Claim = &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "image"},
				Status: corev1.PersistentVolumeClaimStatus{
					Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			}
		}
		return decide(o)
	}
	nowhere := ResolveReference(nil, "golden", "debian")
	there := ResolveReference(leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "image"}}), "golden", "debian")

	if p := decideWith(referring(), nowhere, nil); p.Status.Phase != cdiv1.Pending || actions(p) != "" {
		t.Errorf("a new one is %s and does %q", p.Status.Phase, actions(p))
	}
	p := decideWith(referring(inPhase(cdiv1.Pending)), nowhere, nil)
	if c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning); c.Reason != ReasonSourceNotFound || p.After == 0 || actions(p) != "" {
		t.Errorf("without a DataSource it says %+v, looks again after %s, does %q", c, p.After, actions(p))
	}
	p = decideWith(referring(inPhase(cdiv1.Pending)), there, nil)
	if actions(p) != "create claim" || p.CreateClaim.Annotations[AnnSource] != "pvc/golden/image" {
		t.Errorf("with a DataSource it does %q; the claim is %+v", actions(p), p.CreateClaim)
	}
	for _, phase := range []cdiv1.DataVolumePhase{cdiv1.PVCBound, cdiv1.CloneInProgress} {
		p = decideWith(referring(inPhase(phase)), nowhere, nil)
		if c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning); p.Status.Phase != cdiv1.Failed || c.Reason != ReasonClaimLost {
			t.Errorf("when claim and DataSource are gone after %s it is %s: %+v", phase, p.Status.Phase, c)
		}
	}
	conflicting := referring(inPhase(cdiv1.Pending), annotated(AnnCloneAllowed, "sourceRef/golden/other"))
	if p = decideWith(conflicting, there, nil); p.Status.Phase != cdiv1.Failed {
		t.Errorf("without the right it is %s and does %q", p.Status.Phase, actions(p))
	}
}

func TestAClaimKeepsToWhatItWasMadeFor(t *testing.T) {
	for name, test := range map[string]struct {
		noted string
		owned bool
		want  string
	}{
		"a claim":                            {"pvc/golden/image", true, "pvc/golden/image"},
		"a snapshot":                         {"snapshot/golden/image", true, "snapshot/golden/image"},
		"not what lies in another namespace": {"pvc/secret/image", true, ""},
		"nor what another claim says":        {"pvc/golden/image", false, ""},
		"nor nonsense":                       {"pvc", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dv := referring()
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnSource: test.noted}}}
			if test.owned {
				claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
			}
			got := ""
			if source := Chosen(dv, claim); source != nil {
				dv.Spec.Source = source
				got = chosen(dv)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestADataSourceSaysWhetherItCanBeUsed(t *testing.T) {
	source := leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "image"}})
	bound := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	marked := bound.DeepCopy()
	marked.Name, marked.Annotations = "image", map[string]string{layout.AnnUploadTarget: ""}
	filled := marked.DeepCopy()
	filled.Annotations[layout.AnnPodPhase] = string(corev1.PodSucceeded)
	ready := func(s Source) string {
		source.Status = DataSourceStatus(source, ResolveReference(source, "golden", "debian"), s, noon)
		c := source.Status.Conditions[0]
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	for _, step := range []struct {
		s    Source
		says string
	}{
		{Source{}, "False CloneSourceNotFound: the source claim golden/image does not exist"},
		{Source{Claim: bound, Unfilled: "image"}, "False CloneSourceNotReady: the claim is not filled yet by its DataVolume image"},
		{Source{Claim: marked}, "False CloneSourceNotReady: the claim image awaits an upload: upload its disk, " +
			"or take away its annotation cdi.kubevirt.io/storage.upload.target to use it as it is"},
		{Source{Claim: filled}, "True Ready: DataSource is ready to be consumed"},
		{Source{Claim: bound}, "True Ready: DataSource is ready to be consumed"},
	} {
		if got := ready(step.s); got != step.says {
			t.Errorf("it says %q, want %q", got, step.says)
		}
	}
	before := source.DeepCopy()
	if after := DataSourceStatus(source, ResolveReference(source, "golden", "debian"), Source{Claim: bound}, noon.Add(time.Hour)); after.Conditions[0] != before.Status.Conditions[0] {
		t.Error("what is said already is written again")
	}
}

func TestADataSourceIsWrittenWhenItSaysSomethingElse(t *testing.T) {
	source := leadingTo(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "image"}})
	for name, reference := range map[string]ResolvedReference{
		"another reason":  {Reason: "Other", Message: "x"},
		"another message": {Reason: "NotFound", Message: "y"},
	} {
		source.Status = DataSourceStatus(source, ResolvedReference{Reason: "NotFound", Message: "x"}, Source{}, noon)
		later := DataSourceStatus(source, reference, Source{}, noon.Add(time.Hour)).Conditions[0]
		if later.Reason != reference.Reason || later.Message != reference.Message || !later.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s: it says %+v", name, later)
		}
	}
}
