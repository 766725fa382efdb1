package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// drained is a cluster with one guest on a cordoned node.
type drained struct {
	client.Client
	vmi *v1.VirtualMachineInstance
	pod *corev1.Pod
	// conflicts is the number of patches that lose against another write; change makes each of those writes.
	conflicts int
	change    func(*v1.VirtualMachineInstance)
	// broken fails every read, unpatchable every patch.
	broken, unpatchable bool
	patches             int
}

func newDrained() *drained {
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vmi-uid"},
		Spec:       v1.VirtualMachineInstanceSpec{EvictionStrategy: new(v1.EvictionStrategyLiveMigrate)},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: "a", ActivePods: map[types.UID]string{"pod-uid": "a"}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: launcherpod.Name(vmi), UID: "pod-uid",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)}}}
	return &drained{vmi: vmi, pod: pod}
}

func (d *drained) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	missing := apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	switch into := into.(type) {
	case *corev1.Pod:
		switch {
		case d.broken:
			return errors.New("the API server is away")
		case d.pod == nil || d.pod.Name != key.Name:
			return missing
		}
		d.pod.DeepCopyInto(into)
	case *v1.VirtualMachineInstance:
		if strings.Contains(key.Name, "/") {
			return errors.New("invalid resource name")
		}
		if d.vmi == nil || d.vmi.Name != key.Name {
			return missing
		}
		d.vmi.DeepCopyInto(into)
	case *corev1.Node:
		into.Name, into.Spec.Unschedulable = key.Name, true
	}
	return nil
}

func (d *drained) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	d.patches++
	switch {
	case d.unpatchable:
		return errors.New("the API server is away")
	case d.conflicts > 0:
		d.conflicts--
		if d.change != nil {
			d.change(d.vmi)
		}
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("changed"))
	}
	d.vmi = object.(*v1.VirtualMachineInstance).DeepCopy()
	return nil
}

// evict calls the webhook for the eviction of a pod.
func (d *drained) evict(t *testing.T, pod, eviction string, dryRun bool) *admissionv1.AdmissionResponse {
	t.Helper()
	served, err := webhooks(&clusterconfig.Current{}, d, nil)
	must(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Namespace: "ns", Name: pod, Operation: admissionv1.Create, SubResource: "eviction", DryRun: &dryRun,
		Object: runtime.RawExtension{Raw: []byte(eviction)},
	}})
	must(t, err)
	request := httptest.NewRequest("POST", validateEviction, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	served[validateEviction].ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	must(t, json.Unmarshal(answer.Body.Bytes(), &review))
	if review.Response == nil {
		t.Fatalf("the answer is %s", answer.Body)
	}
	return review.Response
}

const plain = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"x"}}`

func TestAnEvictionIsAnsweredByTheStateOfTheMoment(t *testing.T) {
	const triggered = `Eviction triggered evacuation of VMI "ns/vm": `
	for name, c := range map[string]struct {
		edit     func(*drained)
		eviction string
		dryRun   bool
		code     int32
		says     string
		warns    string
		patches  int
		marked   bool
	}{
		"the guest is to move":               {code: 429, says: triggered, patches: 1, marked: true},
		"it is tried out":                    {dryRun: true, code: 429, says: triggered},
		"it is tried out as kubectl says it": {eviction: `{"kind":"Eviction","deleteOptions":{"dryRun":["All"]}}`, code: 429, says: triggered},
		"it is marked already":               {edit: func(d *drained) { d.vmi = evacuation.Mark(d.vmi, true) }, code: 429, says: "Evacuation in progress: " + triggered, marked: true},
		"somebody else writes first":         {edit: func(d *drained) { d.conflicts = 2 }, code: 429, says: triggered, patches: 3, marked: true},
		"the guest ends meanwhile": {edit: func(d *drained) {
			d.conflicts, d.change = 1, func(v *v1.VirtualMachineInstance) { v.Status.Phase = v1.Succeeded }
		}, patches: 1},
		"somebody writes all the time":                   {edit: func(d *drained) { d.conflicts = 100 }, code: 429, says: "changes faster than it can be marked", patches: markAttempts},
		"the pod is gone":                                {edit: func(d *drained) { d.pod = nil }},
		"the VMI is gone":                                {edit: func(d *drained) { d.vmi = nil }},
		"a pod that says nothing of a VMI":               {edit: func(d *drained) { d.pod.OwnerReferences = nil }},
		"a user's pod that says nonsense":                {edit: func(d *drained) { d.pod.OwnerReferences[0].Name = "../../secrets" }},
		"the pod can't be read: its budget decides":      {edit: func(d *drained) { d.broken = true }, warns: "reading pod ns/virt-launcher-vm-"},
		"the VMI can't be marked: the drain tries again": {edit: func(d *drained) { d.unpatchable = true }, code: 429, says: "marking VMI ns/vm for its evacuation from node a", patches: 1},
		"an eviction that is none":                       {eviction: `[]`, code: 400, says: "decoding"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrained()
			pod := d.pod.Name
			if c.edit != nil {
				c.edit(d)
			}
			eviction := plain
			if c.eviction != "" {
				eviction = c.eviction
			}
			got := d.evict(t, pod, eviction, c.dryRun)
			if got.Allowed != (c.code == 0) || c.code != 0 && (got.Result.Code != c.code || !strings.Contains(got.Result.Message, c.says)) {
				t.Errorf("the answer is %+v %+v", got, got.Result)
			}
			if warned := strings.Join(got.Warnings, " "); (warned != "") != (c.warns != "") || !strings.Contains(warned, c.warns) {
				t.Errorf("it warns %q, want %q", warned, c.warns)
			}
			if d.patches != c.patches {
				t.Errorf("%d patches, want %d", d.patches, c.patches)
			}
			if d.vmi != nil && (d.vmi.Status.EvacuationNodeName == "a" && d.vmi.Annotations[evacuation.CordonAnnotation] == "a") != c.marked {
				t.Errorf("the VMI is marked for %q, annotations %v", d.vmi.Status.EvacuationNodeName, d.vmi.Annotations)
			}
		})
	}
}
