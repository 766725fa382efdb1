package upload

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func apiService(name, service, bundle string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-model"},
		Spec: apiregistrationv1.APIServiceSpec{
			Service:  &apiregistrationv1.ServiceReference{Namespace: "kubevirt", Name: service},
			CABundle: []byte(bundle),
		},
	}
}

func TestTheAPIServiceIsOnlyTouchedWhereItIsOurs(t *testing.T) {
	const name = "v1beta1.upload.cdi.kubevirt.io"
	model := apiService("v1.subresources.kubevirt.io", "virt-api", "new")
	if made := registration(nil, apiService("v1.subresources.kubevirt.io", "virt-api", "")); made != nil {
		t.Error("it was made before there is an authority")
	}
	made := registration(nil, model)
	if made == nil || made.Name != name || string(made.Spec.CABundle) != "new" || made.Spec.Service.Name != "virt-api" {
		t.Fatalf("made: %+v", made)
	}
	if owner := made.OwnerReferences[0]; owner.Name != model.Name || owner.UID != model.UID {
		t.Errorf("it outlives the installation: owner is %+v", owner)
	}
	if again := registration(made, model); again != nil {
		t.Error("it is written again without a change")
	}
	if mended := registration(apiService(name, "virt-api", "old"), model); mended == nil || string(mended.Spec.CABundle) != "new" {
		t.Errorf("after a rotation: %+v", mended)
	}
	if taken := registration(apiService(name, "cdi-api", "theirs"), model); taken != nil {
		t.Error("CDI's was changed")
	}
}
