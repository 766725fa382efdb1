package server

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kube-apiserver merges an aggregated API's OpenAPI into the cluster's. Bodies are not described: KubeVirt's module
// has no OpenAPI definitions.

func (c Config) describe(swagger *spec.Swagger) (*spec.Swagger, error) {
	if swagger.Paths == nil {
		swagger.Paths = &spec.Paths{}
	}
	if swagger.Paths.Paths == nil {
		swagger.Paths.Paths = map[string]spec.PathItem{}
	}
	for _, group := range c.Groups {
		for path, item := range group.openAPI() {
			swagger.Paths.Paths[path] = item
		}
	}
	return swagger, nil
}

func (g Group) openAPIV3(info *spec.Info) *spec3.OpenAPI {
	return openapiconv.ConvertV2ToV3(&spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Info: info, Paths: &spec.Paths{Paths: g.openAPI()},
	}})
}

func (g Group) openAPI() map[string]spec.PathItem {
	items := map[string]spec.PathItem{}
	for _, operation := range g.Operations {
		method, path, _ := strings.Cut(operation, " ")
		below, ours := strings.CutPrefix(path, g.path()+"/")
		if !ours {
			continue
		}
		item := items[path]
		item.Parameters = pathParameters(path)
		described := g.operation(method, below)
		switch method {
		case http.MethodGet:
			item.Get = described
		case http.MethodPut:
			item.Put = described
		case http.MethodPost:
			item.Post = described
		case http.MethodDelete:
			item.Delete = described
		}
		items[path] = item
	}
	return items
}

var parameter = regexp.MustCompile(`\{([a-z]+)\}`)

func pathParameters(path string) []spec.Parameter {
	var parameters []spec.Parameter
	for _, found := range parameter.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, spec.Parameter{
			ParamProps:   spec.ParamProps{Name: found[1], In: "path", Required: true, Description: "the " + found[1]},
			SimpleSchema: spec.SimpleSchema{Type: "string"},
		})
	}
	return parameters
}

func (g Group) operation(method, below string) *spec.Operation {
	words := strings.FieldsFunc(strings.ToLower(method)+"/"+g.Version+"/"+below, func(r rune) bool {
		return strings.ContainsRune("/{}-", r)
	})
	ids := slices.Clone(words)
	for i := range ids[1:] {
		ids[i+1] = strings.ToUpper(ids[i+1][:1]) + ids[i+1][1:]
	}
	return &spec.Operation{OperationProps: spec.OperationProps{
		ID:          strings.Join(ids, ""),
		Tags:        []string{strings.NewReplacer(".", "_").Replace(g.Group) + "_" + g.Version},
		Description: method + " " + parameter.ReplaceAllString(below, "<$1>"),
		Produces:    []string{"*/*"},
		Consumes:    []string{"*/*"},
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusOK:           {ResponseProps: spec.ResponseProps{Description: "OK"}},
			http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
}
