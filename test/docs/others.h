/*
 * Functions of other libraries that the pages call, as far as the pages need them: their headers
 * are not needed to compile the documentation.
 */
#ifndef UMF_TEST_DOCS_OTHERS_H
#define UMF_TEST_DOCS_OTHERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef enum { ncclSuccess = 0 } ncclResult_t;
ncclResult_t ncclCommRegister(ncclComm_t, void *, size_t, void **);

typedef enum { UCS_OK = 0 } ucs_status_t;
typedef struct ucp_context *ucp_context_h;
typedef struct ucp_mem *ucp_mem_h;
enum { UCP_MEM_MAP_PARAM_FIELD_ADDRESS = 1, UCP_MEM_MAP_PARAM_FIELD_LENGTH = 2 };
typedef struct ucp_mem_map_params {
    uint64_t field_mask;
    void *address;
    size_t length;
} ucp_mem_map_params_t;
ucs_status_t ucp_mem_map(ucp_context_h, const ucp_mem_map_params_t *, ucp_mem_h *);

struct ibv_pd;
struct ibv_mr;
enum { IBV_ACCESS_LOCAL_WRITE = 1 };
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);

extern ncclComm_t comm;
extern ucp_context_h context;
extern ucp_mem_h memory;
extern struct ibv_pd *domain;

#ifdef __cplusplus
enum nixl_mem_t { DRAM_SEG, VRAM_SEG };
enum nixl_status_t { NIXL_SUCCESS = 0 };
struct nixlBlobDesc {
    nixlBlobDesc(uintptr_t, size_t, uint64_t, const char *);
};
struct nixl_reg_dlist_t {
    explicit nixl_reg_dlist_t(nixl_mem_t);
    void addDesc(const nixlBlobDesc &);
};
struct nixlAgent {
    nixl_status_t registerMem(const nixl_reg_dlist_t &);
};
extern nixlAgent agent;
extern uint64_t device;
#endif

#endif
