package datavolume

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// A tenant makes a pod of the worker's name, which virt-controller would ask for its progress.
func TestAForeignPodIsNoWorkerOfADataVolume(t *testing.T) {
	dv := pendingImport()
	own := []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	label := map[string]string{v1.AppLabel: datavolume.WorkerAppLabel}
	const foreign = "a pod of that name exists and is not this DataVolume's; delete it"
	for name, test := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		says   string
	}{
		"its owner only": {nil, own, foreign},
		"another's":      {label, nil, foreign},
		"its worker":     {label, own, ""},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &datavolume.Worker{
				Name: datavolume.WorkerName(dv), Namespace: dv.Namespace, Component: datavolume.ComponentImporter,
				Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: dv.Namespace, Name: dv.Name}},
			}
			r, _ := lagging(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: worker.Namespace, Name: worker.Name, Labels: test.labels, OwnerReferences: test.owners,
			}})
			r.Settings = func(context.Context) (clusterconfig.Settings, error) { return clusterconfig.Settings{}, nil }
			pod, err := (&round{Reconciler: r, dv: dv}).createPod(t.Context(), worker)
			if (err == nil) != (test.says == "") || (pod == nil) != (err != nil) || err != nil && !strings.HasSuffix(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}
