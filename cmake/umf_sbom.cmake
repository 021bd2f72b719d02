# The bill of materials of the binaries, in the form of SPDX: umf.spdx.json, installed beside the licences. It names
# the version of jemalloc that is linked in. Libraries found at run time are no part of the binaries.

string(TIMESTAMP umf_sbom_created "%Y-%m-%dT%H:%M:%SZ" UTC) # SOURCE_DATE_EPOCH, where it is set
set(umf_sbom_packages "")
set(umf_sbom_relationships "")
if(TARGET umf_jemalloc)
    set(umf_sbom_packages ",
    {
      \"SPDXID\": \"SPDXRef-jemalloc\",
      \"name\": \"jemalloc\",
      \"versionInfo\": \"${umf_jemalloc_source_version}\",
      \"downloadLocation\": \"${umf_jemalloc_url}\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"BSD-2-Clause\",
      \"licenseDeclared\": \"BSD-2-Clause\",
      \"copyrightText\": \"Jason Evans, Mozilla Foundation, Facebook, Inc.\",
      \"externalRefs\": [
        {
          \"referenceCategory\": \"SECURITY\",
          \"referenceType\": \"cpe23Type\",
          \"referenceLocator\": \"cpe:2.3:a:jemalloc:jemalloc:${umf_jemalloc_source_version}:*:*:*:*:*:*:*\"
        }
      ]
    }")
    set(umf_sbom_relationships ",
    {
      \"spdxElementId\": \"SPDXRef-libumf\",
      \"relationshipType\": \"STATIC_LINK\",
      \"relatedSpdxElement\": \"SPDXRef-jemalloc\"
    }")
endif()
string(SHA256 umf_sbom_id "${UMF_VERSION_TEXT}${umf_sbom_packages}")
string(SUBSTRING "${umf_sbom_id}" 0 16 umf_sbom_id)
configure_file("${PROJECT_SOURCE_DIR}/licensing/umf.spdx.json.in" "${PROJECT_BINARY_DIR}/umf.spdx.json" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/umf.spdx.json" DESTINATION "${umf_doc_dir}/licensing" COMPONENT umf_development)
