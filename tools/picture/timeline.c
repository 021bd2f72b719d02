/* Bins of the timeline: what pools and places have at the end of each. */
#include "parts.h"

static uint64_t *rows(picture_t *picture, uint32_t slots, uint32_t bins) {
    return picture_take(picture, (size_t)slots * bins, sizeof(uint64_t));
}

void picture_timeline_prepare(picture_t *picture) {
    const uint32_t room = 1u << 17; /* of numbers, for all sites */
    uint32_t bins = room / (picture->slot_count + 1);
    picture->site_bins = bins > PICTURE_BINS ? PICTURE_BINS : bins;
    for (int i = 0; i < 2; i++) {
        picture->pool_bins[i] = rows(picture, picture->pool_count + 1, PICTURE_BINS);
        picture->site_bins_of[i] = rows(picture, picture->slot_count + 1, picture->site_bins);
    }
    picture->top = rows(picture, 1, PICTURE_BINS);
    picture->pool_bin = picture->site_bin = 0;
    picture_pages_prepare(picture);
}

static uint32_t bin_of(const picture_t *picture, int64_t t, uint32_t bins) {
    if (t <= 0) {
        return 0;
    }
    double bin = (double)t / (double)picture->length * bins;
    return bin < bins ? (uint32_t)bin : bins - 1;
}

static void fill(uint64_t *const values[2], uint32_t bins, uint32_t bin, const uint64_t *now[2],
                 uint32_t slots) {
    for (int i = 0; i < 2; i++) {
        for (uint32_t slot = 0; slot < slots; slot++) {
            values[i][(size_t)slot * bins + bin] = now[i][slot];
        }
    }
}

static void set_pool_bin(picture_t *picture) {
    const uint64_t *now[2] = {picture->pool_now[0], picture->pool_now[1]};
    if (!picture->is_pool_bin_set) {
        fill(picture->pool_bins, PICTURE_BINS, picture->pool_bin, now, picture->pool_count + 1);
        picture_pages_set(picture, picture->pool_bin);
    }
}

static void set_site_bin(picture_t *picture) {
    const uint64_t *now[2] = {picture->site_now[0], picture->site_now[1]};
    if (!picture->is_site_bin_set) {
        fill(picture->site_bins_of, picture->site_bins, picture->site_bin, now,
             picture->slot_count + 1);
    }
}

/* The open bins keep what there is now, and not what there will be at their ends. */
void picture_timeline_set(picture_t *picture) {
    set_pool_bin(picture);
    set_site_bin(picture);
    picture->is_pool_bin_set = picture->is_site_bin_set = true;
}

static void close_pool_bins(picture_t *picture, uint32_t until) {
    for (; picture->pool_bin < until; picture->pool_bin++) {
        set_pool_bin(picture);
        picture->is_pool_bin_set = false;
        picture_timeline_after(picture);
        if (picture->pool_bin + 1 < PICTURE_BINS) {
            picture->top[picture->pool_bin + 1] = picture->live;
        }
    }
}

static void close_site_bins(picture_t *picture, uint32_t until) {
    for (; picture->site_bin < until; picture->site_bin++) {
        set_site_bin(picture);
        picture->is_site_bin_set = false;
    }
}

void picture_timeline_before(picture_t *picture, int64_t t) {
    close_pool_bins(picture, bin_of(picture, t, PICTURE_BINS));
    close_site_bins(picture, bin_of(picture, t, picture->site_bins));
}

void picture_timeline_after(picture_t *picture) {
    uint64_t *top = &picture->top[picture->pool_bin];
    *top = picture->live > *top ? picture->live : *top;
}

void picture_timeline_end(picture_t *picture) {
    close_pool_bins(picture, PICTURE_BINS);
    close_site_bins(picture, picture->site_bins);
}

static void write_pools(picture_t *picture) {
    picture_out_t *out = picture->out;
    picture_key(out, "pools");
    picture_open(out, '[');
    for (uint32_t slot = 0; slot <= picture->pool_count; slot++) {
        bool is_rest = slot == picture->pool_count;
        picture_open(out, '{');
        picture_key(out, "object");
        picture_number(out, is_rest ? -1 : picture_name(picture, picture->pools[slot]));
        picture_key(out, "live");
        picture_series(out, &picture->pool_bins[0][(size_t)slot * PICTURE_BINS], PICTURE_BINS);
        picture_key(out, "held");
        picture_series(out, &picture->pool_bins[1][(size_t)slot * PICTURE_BINS], PICTURE_BINS);
        picture_close(out, '}');
    }
    picture_close(out, ']');
}

static void write_sites(picture_t *picture, const char *key, const char *rest, int which) {
    picture_out_t *out = picture->out;
    const uint64_t *values = picture->site_bins_of[which];
    picture_key(out, key);
    picture_open(out, '[');
    for (uint32_t slot = 0; slot < picture->slot_count; slot++) {
        picture_series(out, &values[(size_t)slot * picture->site_bins], picture->site_bins);
    }
    picture_close(out, ']');
    picture_key(out, rest);
    picture_series(out, &values[(size_t)picture->slot_count * picture->site_bins],
                   picture->site_bins);
}

static void write_places(picture_t *picture) {
    picture_out_t *out = picture->out;
    picture_key(out, "sites");
    picture_open(out, '[');
    for (uint32_t slot = 0; slot < picture->slot_count; slot++) {
        const picture_site_t *site = &picture->sites[picture->site_of[slot]];
        picture_open(out, '[');
        picture_number(out, picture_name(picture, site->object));
        picture_number(out, picture_stack(picture, site->stack));
        picture_close(out, ']');
    }
    picture_close(out, ']');
}

void picture_timeline_write(picture_t *picture) {
    picture_out_t *out = picture->out;
    write_places(picture);
    picture_key(out, "timeline");
    picture_open(out, '{');
    picture_member(out, "bins", PICTURE_BINS);
    write_pools(picture);
    picture_pages_write(picture);
    picture_key(out, "top");
    picture_series(out, picture->top, PICTURE_BINS);
    picture_member(out, "site_bins", picture->site_bins);
    picture_member(out, "sites_left", picture->site_count - picture->slot_count);
    write_sites(picture, "site_bytes", "rest_bytes", 0);
    write_sites(picture, "site_counts", "rest_counts", 1);
    picture_close(out, '}');
}
