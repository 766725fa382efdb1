package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
)

// The API groups' paths.
var (
	cdiRoot    = "/apis/" + cdiv1.SchemeGroupVersion.String()
	uploadRoot = "/apis/" + uploadv1.SchemeGroupVersion.String()
)

// DataVolume reads a DataVolume.
func (c *Client) DataVolume(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error) {
	dv := &cdiv1.DataVolume{}
	return dv, decode(c.rest.Get().AbsPath(cdiRoot, "namespaces", namespace, "datavolumes", name).Do(ctx), dv)
}

// CreateDataVolume creates a DataVolume.
func (c *Client) CreateDataVolume(ctx context.Context, dv *cdiv1.DataVolume) error {
	dv.TypeMeta = metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"}
	return c.post(ctx, dv, dv, cdiRoot, "namespaces", dv.Namespace, "datavolumes")
}

// ApplyDataSource creates or changes a DataSource.
func (c *Client) ApplyDataSource(ctx context.Context, source *cdiv1.DataSource) error {
	source.TypeMeta = metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataSource"}
	body, err := json.Marshal(source)
	if err != nil {
		return fmt.Errorf("encoding the DataSource: %w", err)
	}
	return c.rest.Patch(types.ApplyPatchType).AbsPath(cdiRoot, "namespaces", source.Namespace, "datasources", source.Name).
		Param("fieldManager", "virtctl").Param("force", "true").Body(body).Do(ctx).Error()
}

// CDIConfig reads the settings of imports and uploads.
func (c *Client) CDIConfig(ctx context.Context) (*cdiv1.CDIConfig, error) {
	config := &cdiv1.CDIConfig{}
	return config, decode(c.rest.Get().AbsPath(cdiRoot, "cdiconfigs", "config").Do(ctx), config)
}

// UploadToken requests a token for a claim.
func (c *Client) UploadToken(ctx context.Context, namespace, claim string) (string, error) {
	request := &uploadv1.UploadTokenRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: uploadv1.SchemeGroupVersion.String(), Kind: "UploadTokenRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: claim, Namespace: namespace},
		Spec:       uploadv1.UploadTokenRequestSpec{PvcName: claim},
	}
	answer := &uploadv1.UploadTokenRequest{}
	err := c.post(ctx, request, answer, uploadRoot, "namespaces", namespace, "uploadtokenrequests")
	return answer.Status.Token, err
}

func (c *Client) post(ctx context.Context, object, into any, path ...string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	return decode(c.rest.Post().AbsPath(path...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx), into)
}

// The type is not in the client's scheme.
func decode(result rest.Result, into any) error {
	text, err := raw(result)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}
