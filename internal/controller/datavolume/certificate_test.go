package datavolume

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/certs/workertls/workertlstest"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// TestAWorkersCertificateIsRenewed gives a worker that waits for its upload a certificate near its end. It must be
// replaced.
func TestAWorkersCertificateIsRenewed(t *testing.T) {
	authority := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: certs.UploadSecret}, Data: workertlstest.Secret(t)}
	api := fake.NewClientBuilder().WithObjects(authority).Build()
	now := time.Now()
	process := func() *Reconciler {
		return &Reconciler{Client: api, Reader: api, Namespace: "kubevirt", Now: func() time.Time { return now }}
	}
	r := process()
	owner := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1234-5"}}
	worker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cdi-upload-disk"}}
	c := datavolume.UploadCertificate(owner)
	shown := func() []byte {
		t.Helper()
		var secret corev1.Secret
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: c.Secret}, &secret); err != nil {
			t.Fatal(err)
		}
		return secret.Data[workertls.CertFile]
	}
	if err := r.certify(t.Context(), c, worker); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what  string
		do    func()
		renew bool
	}{
		{"a fresh one stays", func() { now = now.Add(time.Hour) }, false},
		{"one of a day goes", func() { now = now.Add(renewAfter) }, true},
		{"and its successor stays", func() { now = now.Add(time.Hour) }, false},
		{"one that another process has made goes", func() { r = process() }, true},
		{"one of an authority that was replaced goes", func() {
			now = now.Add(lookEvery)
			authority.Data = workertlstest.Secret(t)
			if err := api.Update(t.Context(), authority); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		before := shown()
		step.do()
		if err := r.renewCertificate(t.Context(), c, worker); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if renewed := !bytes.Equal(before, shown()); renewed != step.renew {
			t.Errorf("%s: renewed is %v", step.what, renewed)
		}
	}
}
